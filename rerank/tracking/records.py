"""What is logged of a run of a job, and where it was written: values, and what reading them takes.

MLflow is imported when the client is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rerank.errors import missing_extra
from rerank.tracking.secrets import kept_store, without_secrets

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Run

FOLDER = "model"
"""Where the folder of a record lies among the run's artefacts."""

ARTIFACT = "folder"
"""What the code of a flavour knows the folder as: `context.artifacts[ARTIFACT]`."""

INNER = f"artifacts/{ARTIFACT}"
"""Where the folder lies in the MLflow model that a flavour makes of it."""

COMMAND, COMMIT = "mlflow.source.name", "mlflow.source.git.commit"
"""MLflow's own tags of the command line and of the git commit."""

KEY = "record_key"
"""The tag that holds a record's key."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """How MLflow runs a folder, by its own rules of models from code.

    code: a Python file that calls `mlflow.models.set_model`; the folder is its
        `context.artifacts["folder"]`.
    inputs, outputs: example data frames from which the signature is made; a column that misses a
        value is optional.
    requirements: lines of pip requirements.
    """

    code: Path
    inputs: pd.DataFrame
    outputs: pd.DataFrame
    requirements: Sequence[str]


@dataclass(frozen=True, slots=True)
class DataUsed:
    """A data set that a run used (MLflow input). `counts`, such as queries per split, are shown."""

    name: str
    digest: str
    used_for: str
    counts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is logged of a run; everything is optional.

    curves: metrics by step.
    files: logged under their own names. tables: artefact name, with or without its ending, to data
        frame (JSON, as MLflow shows it). folder: a folder of files, logged as "model" and, if
        `registered_name` is given, registered under that name; with a `flavour` it is a model that
        MLflow loads.
    key: identifies what is logged: if the experiment has a finished run of this key, no other is
        made.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[DataUsed] = ()
    files: Sequence[Path] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    folder: Path | None = None
    registered_name: str | None = None
    flavour: Flavour | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """Where a run was written.

    `model_version` is the version that is registered under `model_name`; both are None if none is.
    `found`: the store already had a run of this key, and nothing was written. `command` and
    `commit` are the command line and the git commit that made it, `started` is when, in seconds
    since 1970; "" and 0 if they are not known.
    """

    run_id: str
    experiment_id: str
    tracking_uri: str
    model_version: str | None
    model_name: str | None = None
    found: bool = False
    experiment: str = ""  # its name
    command: str = ""
    commit: str = ""
    started: float = 0.0


def client_module() -> ModuleType:
    """`rerank.tracking.client`, which imports MLflow.

    Raises:
        MissingExtraError: MLflow is not installed.
    """
    try:
        return import_module("rerank.tracking.client")
    except ImportError as error:
        raise missing_extra("track", error) from None


def reason(error: Exception) -> str:
    """What an error says, in one line of at most 300 characters, without secrets of addresses."""
    words = map(without_secrets, str(error).split())
    return (" ".join(words) or type(error).__name__)[:300]


def tracked_run(
    client: MlflowClient,
    run: Run,
    uri: str,
    *,
    version: str | None,
    name: str | None,
    found: bool = False,
) -> TrackedRun:
    """What is told of a run in the store at `uri`; its folder is this version of a model."""
    info, tags = run.info, run.data.tags
    return TrackedRun(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        tracking_uri=kept_store(uri),
        model_version=version,
        model_name=name,
        found=found,
        experiment=str(client.get_experiment(info.experiment_id).name),
        command=tags.get(COMMAND, ""),
        commit=tags.get(COMMIT, ""),
        started=(info.start_time or 0) / 1000,
    )

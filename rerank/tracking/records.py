"""What is logged of a run of a job, and where it was written; MLflow is not imported."""

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

FOLDER = "model"  # where the folder of a record lies among the run's artefacts
ARTIFACT = "folder"  # what the code of a flavour knows the folder as: `context.artifacts[ARTIFACT]`
INNER = f"artifacts/{ARTIFACT}"
"""Where the folder lies in the MLflow model that a flavour makes of it."""

COMMAND, COMMIT = "mlflow.source.name", "mlflow.source.git.commit"
"""MLflow's own tags of the command line and of the git commit."""

KEY = "record_key"  # the tag that holds a record's key


@dataclass(frozen=True, slots=True)
class Flavour:
    """How MLflow runs a folder, by its own rules of models from code."""

    code: Path  # calls `mlflow.models.set_model`; the folder is `context.artifacts["folder"]`
    inputs: pd.DataFrame  # examples for the signature; a column that misses a value is optional
    outputs: pd.DataFrame
    requirements: Sequence[str]  # lines for pip


@dataclass(frozen=True, slots=True)
class DataUsed:
    """A data set that a run used (MLflow input). `counts`, such as queries per split, are shown."""

    name: str
    digest: str
    used_for: str
    counts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is logged of a run; everything is optional."""

    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # by step
    tags: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[DataUsed] = ()
    files: Sequence[Path] = ()  # under their own names
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # by name of the artefact
    folder: Path | None = None  # logged as "model"
    registered_name: str | None = None  # of the folder
    flavour: Flavour | None = None  # makes the folder a model that MLflow loads
    key: str | None = None  # at most one finished run of an experiment has it


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """Where a run was written, and what made it: "" and 0 if that is not known."""

    run_id: str
    experiment_id: str
    tracking_uri: str
    model_version: str | None  # registered under `model_name`
    model_name: str | None = None
    found: bool = False  # the store already had a run of this key, and nothing was written
    experiment: str = ""  # its name
    command: str = ""
    commit: str = ""
    started: float = 0.0  # seconds since 1970


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

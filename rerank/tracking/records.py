"""What is logged of a run of a job, and where it was written; MLflow is not imported.

Addresses and commands are shown without secrets: users, passwords, and all behind a `?` or `#`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from rerank.errors import optional

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run


FOLDER = "model"  # the name of the model that a run logs
ARTIFACT = "folder"  # what the code of a flavour knows the folder as: `context.artifacts[ARTIFACT]`
INNER = f"artifacts/{ARTIFACT}"  # where it lies in the MLflow model that a flavour makes of it
COMMAND, COMMIT = "mlflow.source.name", "mlflow.source.git.commit"  # MLflow's own tags
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
    """A data set that a run used (MLflow input). `counts`, such as queries per split, are shown.

    `columns` are the fields of a label and MLflow's names of their types.
    """

    name: str
    digest: str
    used_for: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


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
    registered_name: str | None = None  # of the folder; the version gets the tags, too
    description: str = ""  # of the version
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
    """`rerank.tracking.client`, which imports MLflow."""
    with optional():
        return import_module("rerank.tracking.client")


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


def logged_models(client: MlflowClient, run_id: str) -> list[LoggedModel]:
    """The models that a run logged."""
    outputs = client.get_run(run_id).outputs
    return [client.get_logged_model(o.model_id) for o in (outputs.model_outputs if outputs else ())]


LOCAL = ("", "file", "sqlite")  # schemes of a file of this machine
_ADDRESS = re.compile(r"(.*?)([A-Za-z][A-Za-z0-9+.-]*:/{2,})(.*)", re.DOTALL)


def shown_store(uri: str) -> str:
    """The address of a store for a page: without secrets; of a local file only its name.

    >>> shown_store("https://user:secret@mlflow.example:5000/team?token=secret")
    'https://mlflow.example:5000/team'
    >>> shown_store("sqlite:////home/ann/work/mlflow.db")
    'sqlite: mlflow.db'
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme.lower() in LOCAL:
        kind = scheme.lower() if colon else "file"
        path = re.split("[?#]", rest if colon else uri)[0]
        return f"{kind}: {unquote(PurePath(path).name)}"
    return without_secrets(uri)


def kept_store(uri: str) -> str:
    """The address of a store to keep and to print: whole if it is of this machine, else without
    secrets.

    >>> kept_store("https://user:secret@mlflow.example:5000/team")
    'https://mlflow.example:5000/team'
    """
    return uri if uri.partition(":")[0].lower() in LOCAL else without_secrets(uri)


def shown_command(command: str) -> str:
    """A command line in which every address is without secrets; "" if it cannot be read.

    >>> shown_command("rerank recalibrate m --journal postgresql://ann:secret@host/db")
    'rerank recalibrate m --journal postgresql://host/db'
    """
    try:
        words = shlex.split(command)
    except ValueError:  # cut within quotes
        return "" if "@" in command or "://" in command else command
    return shlex.join(map(without_secrets, words))


def without_secrets(word: str) -> str:
    """A word; if it holds an address, without its user, password, query and fragment."""
    address = _ADDRESS.fullmatch(word)
    if address is None:
        return word
    head, scheme, tail = address.groups()
    return f"{head}{scheme}{re.split('[?#]', tail.rpartition('@')[2])[0]}"

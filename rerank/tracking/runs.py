"""One run of a job, written to MLflow, with its folder as a model that MLflow can load.

A record in, ids out. It knows nothing of what the numbers mean, nor of what the model does: the
code that runs it is handed in. It leaves no global state and no active run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.time import get_current_time_millis

from rerank.tracking.client import IMPATIENCE, environment, named_store, store

if TYPE_CHECKING:
    import pandas as pd

LONGEST_PARAM = 6000
"""Characters of a parameter that MLflow takes; a longer one is cut, and whole in `params.json`."""

FOLDER = "model"
"""Where the folder of a record lies among the run's artefacts."""

ARTIFACT = "folder"
"""What the code of a flavour knows the folder as: `context.artifacts[ARTIFACT]`."""

INNER = f"artifacts/{ARTIFACT}"
"""Where the folder lies in the MLflow model that a flavour makes of it."""

KEY = "record_key"
"""The tag that holds a record's key."""


@dataclass(frozen=True)
class Flavour:
    """How MLflow runs a folder, by its own rules of models from code.

    code: a Python file that calls `mlflow.models.set_model`; the folder is its
        `context.artifacts["folder"]`.
    inputs, outputs: data frames such as it takes and gives, from which the signature is made; a
        column that misses a value is optional.
    requirements: lines for pip.
    """

    code: Path
    inputs: pd.DataFrame
    outputs: pd.DataFrame
    requirements: Sequence[str]


@dataclass(frozen=True)
class RunRecord:
    """What a run leaves: everything is optional.

    curves: metrics by step.
    files: logged under their own names. tables: artefact name, with or without its ending, to data
        frame (JSON, as MLflow shows it). folder: a folder of files, logged as "model" and, where
        `registered_name` is given, registered under that name; with a `flavour` it is a model that
        MLflow loads.
    key: names what is logged: where the experiment has a finished run of this key, no other is
        made.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Path] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    folder: Path | None = None
    registered_name: str | None = None
    flavour: Flavour | None = None
    key: str | None = None


@dataclass(frozen=True)
class TrackedRun:
    """Where a run was written.

    `model_version` is the registered version, or None. `found`: the store had a run of this key
    already, and nothing was written.
    """

    run_id: str
    experiment_id: str
    tracking_uri: str
    model_version: str | None
    found: bool = False


def log_run(
    record: RunRecord,
    *,
    experiment: str,
    run_name: str,
    tracking_uri: str,
    artifact_location: str | None = None,
) -> TrackedRun:
    """Write a record as one finished run; a failure on the way marks the run FAILED and is raised.

    The environment's MLFLOW_TRACKING_URI wins over `tracking_uri` (such as `sqlite:///runs.db`).
    `artifact_location` is where a new experiment keeps its files; an existing one keeps its own,
    and a server that was named by the environment decides for itself. A server that does not
    answer is given up after about a minute (see `rerank.tracking.client.PATIENCE`).

    Raises:
        ValueError: `registered_name` without a folder, or a folder that does not exist.
        mlflow.exceptions.MlflowException: the store refuses, or cannot be reached.
    """
    if record.registered_name and record.folder is None:
        raise ValueError(f"to register {record.registered_name!r} a folder is needed, got none")
    if record.folder is not None and not Path(record.folder).is_dir():
        raise ValueError(f"{record.folder} is not a folder")
    uri = named_store() or tracking_uri
    with store(uri) as client:
        local = uri == tracking_uri or uri.startswith(("sqlite:", "file:"))
        place = artifact_location if local else None
        experiment_id = _experiment(client, experiment, place)
        known = _known(client, experiment_id, record)
        if known is not None:
            return TrackedRun(known[0], experiment_id, uri, known[1], found=True)
        tags = {KEY: record.key} if record.key else {}
        run = client.create_run(experiment_id, run_name=run_name, tags=tags)
        run_id = run.info.run_id
        try:
            version = _fill(client, run_id, record)
        except BaseException:
            with suppress(Exception), environment(IMPATIENCE):
                client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
    return TrackedRun(run_id, experiment_id, uri, version)


def _known(
    client: MlflowClient, experiment_id: str, record: RunRecord
) -> tuple[str, str | None] | None:
    """The finished run of the record's key, and the version it registered."""
    if record.key is None:
        return None
    asked = f"tags.{KEY} = '{record.key}' and attributes.status = 'FINISHED'"
    runs = client.search_runs([experiment_id], asked, max_results=1)
    if not runs:
        return None
    run_id = runs[0].info.run_id
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    return run_id, str(versions[0].version) if versions else None


def _fill(client: MlflowClient, run_id: str, record: RunRecord) -> str | None:
    now = get_current_time_millis()
    params = {key: str(value) for key, value in record.params.items()}
    client_params = [Param(key, _cut(value)) for key, value in params.items()]
    for start in range(0, len(client_params), 100):  # MLflow takes a hundred a request
        client.log_batch(run_id, params=client_params[start : start + 100])
    client.log_batch(
        run_id,
        metrics=[Metric(key, float(value), now, 0) for key, value in record.metrics.items()],
        tags=[RunTag(key, str(value)) for key, value in record.tags.items()],
    )
    points = [
        Metric(key, float(value), now, step)
        for key, curve in record.curves.items()
        for step, value in curve.items()
    ]
    for start in range(0, len(points), 1000):  # and a thousand metrics
        client.log_batch(run_id, metrics=points[start : start + 1000])
    if any(len(value) > LONGEST_PARAM for value in params.values()):
        client.log_dict(run_id, params, "params.json")
    for file in record.files:
        client.log_artifact(run_id, str(file))
    for name, table in record.tables.items():
        client.log_table(run_id, table, _ending(name, ".json"))
    if record.folder is None:
        return None
    if record.flavour is None:
        client.log_artifacts(run_id, str(record.folder), FOLDER)
    else:
        _log_model(client, run_id, record.folder, record.flavour)
    if not record.registered_name:
        return None
    try:
        client.create_registered_model(record.registered_name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    source = f"{client.get_run(run_id).info.artifact_uri}/{FOLDER}"
    version = client.create_model_version(record.registered_name, source=source, run_id=run_id)
    return str(version.version)


def _log_model(client: MlflowClient, run_id: str, folder: Path, flavour: Flavour) -> None:
    """Log the folder inside an MLflow model; its files go from where they lie, and only once."""
    with tempfile.TemporaryDirectory() as place:
        made, stand_in = Path(place) / "model", Path(place) / ARTIFACT
        stand_in.mkdir()
        mlflow.pyfunc.save_model(
            str(made),
            python_model=str(flavour.code),
            artifacts={ARTIFACT: str(stand_in)},
            signature=mlflow.models.infer_signature(flavour.inputs, flavour.outputs),
            input_example=flavour.inputs,
            pip_requirements=list(flavour.requirements),
        )
        client.log_artifacts(run_id, str(made), FOLDER)
    client.log_artifacts(run_id, str(folder), f"{FOLDER}/{INNER}")


def _experiment(client: MlflowClient, name: str, place: str | None) -> str:
    known = client.get_experiment_by_name(name)
    if known is not None:
        return str(known.experiment_id)
    return str(client.create_experiment(name, artifact_location=place))


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_PARAM else value[: LONGEST_PARAM - 1] + "…"


def _ending(name: str, ending: str) -> str:
    return name if name.endswith(ending) else name + ending

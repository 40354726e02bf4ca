"""One run of a job, written to MLflow: the only file that imports mlflow.

A record in, ids out. It knows nothing of what the numbers mean. It leaves no global state: no
active run, no tracking URI, no logging level.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.time import get_current_time_millis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

VARIABLE = "MLFLOW_TRACKING_URI"
LONGEST_PARAM = 6000
"""Characters of a parameter that MLflow takes; a longer one is cut, and whole in `params.json`."""

FOLDER = "model"
"""Where the folder of a record lies among the run's artefacts."""


@dataclass(frozen=True)
class RunRecord:
    """What a run leaves: everything is optional.

    curves: metrics by step.
    figures and tables: artefact name, with or without its ending, to figure (PNG) or data frame
        (JSON, as MLflow shows it). folder: a folder of files, logged as "model" and, where
        `registered_name` is given, registered under that name.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    folder: Path | None = None
    registered_name: str | None = None


@dataclass(frozen=True)
class TrackedRun:
    """Where a run was written. `model_version` is the registered version, or None."""

    run_id: str
    experiment_id: str
    tracking_uri: str
    model_version: str | None


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
    and a server that was named by the environment decides for itself.

    Raises:
        ValueError: `registered_name` without a folder, or a folder that does not exist.
        mlflow.exceptions.MlflowException: the store refuses.
    """
    if record.registered_name and record.folder is None:
        raise ValueError(f"to register {record.registered_name!r} a folder is needed, got none")
    if record.folder is not None and not Path(record.folder).is_dir():
        raise ValueError(f"{record.folder} is not a folder")
    named = os.environ.get(VARIABLE)
    uri = named or tracking_uri
    with _quiet(), _tracking_uri(uri):
        client = MlflowClient(tracking_uri=uri)
        local = uri == tracking_uri or uri.startswith(("sqlite:", "file:"))
        place = artifact_location if local else None
        experiment_id = _experiment(client, experiment, place)
        run = client.create_run(experiment_id, run_name=run_name)
        run_id = run.info.run_id
        try:
            version = _fill(client, run_id, record)
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id, "FINISHED")
    return TrackedRun(run_id, experiment_id, uri, version)


CHAMPION = "champion"
"""The alias of the registered version that production loads."""


def champion(name: str, *, tracking_uri: str) -> tuple[str, Path] | None:
    """Return the version that is the champion and its folder, or None where there is none.

    The folder is a copy of the run's artefacts, in a temporary place.

    Raises:
        mlflow.exceptions.MlflowException: the store cannot be reached.
    """
    with _store(tracking_uri) as client:
        try:
            version = client.get_model_version_by_alias(name, CHAMPION)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise
        place = mlflow.artifacts.download_artifacts(artifact_uri=version.source)
    return str(version.version), Path(place)


def crown(name: str, run_id: str, *, tracking_uri: str) -> str:
    """Make the version that a run registered the champion, and return its number.

    Raises:
        ValueError: the run registered no version of that name.
    """
    with _store(tracking_uri) as client:
        found = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
        if not found:
            raise ValueError(f"run {run_id} registered no version of {name!r}")
        newest = max(found, key=lambda version: int(version.version))
        client.set_registered_model_alias(name, CHAMPION, newest.version)
    return str(newest.version)


@contextmanager
def _store(tracking_uri: str) -> Iterator[MlflowClient]:
    """A client of the store that the environment names, else of `tracking_uri`."""
    uri = os.environ.get(VARIABLE) or tracking_uri
    with _quiet(), _tracking_uri(uri):
        yield MlflowClient(tracking_uri=uri)


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
    for name, figure in record.figures.items():
        client.log_figure(run_id, figure, _ending(name, ".png"), save_kwargs={"dpi": 150})
    for name, table in record.tables.items():
        client.log_table(run_id, table, _ending(name, ".json"))
    if record.folder is None:
        return None
    client.log_artifacts(run_id, str(record.folder), FOLDER)
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


def _experiment(client: MlflowClient, name: str, place: str | None) -> str:
    known = client.get_experiment_by_name(name)
    if known is not None:
        return str(known.experiment_id)
    return str(client.create_experiment(name, artifact_location=place))


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_PARAM else value[: LONGEST_PARAM - 1] + "…"


def _ending(name: str, ending: str) -> str:
    return name if name.endswith(ending) else name + ending


@contextmanager
def _tracking_uri(uri: str) -> Iterator[None]:
    """Point MLflow's global at uri for the while: some of its artefact code reads only that.

    MLflow writes its global into the environment as well, which is put back too.
    """
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    named = os.environ.get(VARIABLE)
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)
        if named is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = named


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the chatter of a fresh database's migrations out of the terminal for the while."""
    names = ("alembic", "alembic.runtime.migration", "mlflow", "mlflow.store.db.utils")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)

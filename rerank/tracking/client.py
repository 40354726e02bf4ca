"""Access to MLflow: one store at a time, quietly, and with short timeouts.

Its import imports MLflow. The tracking URI, logging levels and environment variables are set only
while a store is in use, by one thread at a time.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import RLock

import mlflow
from mlflow import MlflowClient
from sqlalchemy.engine import make_url

from rerank.storage.files import locked, remove_leftovers
from rerank.storage.folder import sqlite_url

VARIABLE = "MLFLOW_TRACKING_URI"
_IN_USE = RLock()

# where the environment has no limits; with MLflow's own, seven retries of two minutes each, a dead
# server would delay a finished job by a quarter of an hour
HTTP_LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
# while a run is marked as failed, perhaps because its server does not answer
HTTP_LIMITS_ON_FAILURE = dict(zip(HTTP_LIMITS, ("0", "5"), strict=True))
_SILENT = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_NOISY_LOGGERS = ("alembic", "alembic.runtime.migration", "mlflow", "mlflow.store.db.utils")


def named_store() -> str | None:
    """The store named by the environment, or set by the process in MLflow itself."""
    named = os.environ.get(VARIABLE)
    if named is None and mlflow.is_tracking_uri_set():
        named = str(mlflow.get_tracking_uri())
    return named or None


@contextmanager
def store(tracking_uri: str) -> Iterator[MlflowClient]:
    """A client of one store, which is MLflow's global one meanwhile: some of its code needs that.

    MLflow takes `VARIABLE` for its global store, and writes it to the environment as well.
    """
    with _IN_USE, ExitStack() as restored:
        for logger in map(
            logging.getLogger, _NOISY_LOGGERS
        ):  # a new database's migrations stay out of the terminal
            restored.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.WARNING)
        unset = {key: value for key, value in HTTP_LIMITS.items() if key not in os.environ}
        with environment({**unset, **_SILENT, VARIABLE: ""}):
            old_uri = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
            mlflow.set_tracking_uri(tracking_uri)
            try:
                _make_database(tracking_uri)
                yield MlflowClient(tracking_uri=tracking_uri)
            finally:
                mlflow.set_tracking_uri(old_uri)


def sqlite_file(tracking_uri: str) -> Path | None:
    """The file of a SQLite store, without the options behind a `?`; None for another store."""
    if not tracking_uri.startswith("sqlite:///"):
        return None
    return Path(make_url(tracking_uri).database or "")


def _make_database(tracking_uri: str) -> None:
    """Create the database of a SQLite store, if it does not exist, whole or not at all.

    MLflow creates it by dozens of migrations, and cannot resume them after it was killed.
    """
    path = sqlite_file(tracking_uri)
    if path is None or path.exists() or not path.parent.is_dir():
        return
    remove_leftovers(path)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent))
    try:
        with locked(aside):
            new = aside / path.name
            MlflowClient(tracking_uri=sqlite_url(new)).search_experiments(max_results=1)
            with suppress(FileExistsError):  # another process was faster
                os.link(new, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the duration of the block."""
    old_values = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key in values:
            os.environ.pop(key, None)
        os.environ.update({key: value for key, value in old_values.items() if value is not None})

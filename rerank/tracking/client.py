"""A store of MLflow: access to one at a time, quietly, with short timeouts; and how it is shown.

The tracking URI, logging levels and environment variables are set only while a store is in use, by
one thread at a time. Addresses and commands are shown without secrets: users, passwords, and all
behind a `?` or `#`. MLflow is imported when it is used.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from threading import RLock
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rerank.errors import optional
from rerank.storage.files import locked, remove_leftovers
from rerank.storage.folder import sqlite_url

if TYPE_CHECKING:
    from mlflow import MlflowClient

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
    """The store named by the environment, or set by the process in MLflow itself.

    Raises:
        MissingExtraError: MLflow is not installed.
    """
    with optional():
        import mlflow
    named = os.environ.get(VARIABLE)
    if named is None and mlflow.is_tracking_uri_set():
        named = str(mlflow.get_tracking_uri())
    return named or None


@contextmanager
def store(tracking_uri: str) -> Iterator[MlflowClient]:
    """A client of one store, which is MLflow's global one meanwhile: some of its code needs that.

    MLflow takes `VARIABLE` for its global store, and writes it to the environment as well.
    """
    import mlflow

    with _IN_USE, ExitStack() as restored:
        # a new database's migrations stay out of the terminal
        for logger in map(logging.getLogger, _NOISY_LOGGERS):
            restored.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.WARNING)
        unset = {key: value for key, value in HTTP_LIMITS.items() if key not in os.environ}
        with environment({**unset, **_SILENT, VARIABLE: ""}):
            old_uri = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
            mlflow.set_tracking_uri(tracking_uri)
            try:
                _make_database(tracking_uri)
                yield mlflow.MlflowClient(tracking_uri=tracking_uri)
            finally:
                mlflow.set_tracking_uri(old_uri)


def sqlite_file(tracking_uri: str) -> Path | None:
    """The file of a SQLite store, without the options behind a `?`; None for another store."""
    from sqlalchemy.engine import make_url

    if not tracking_uri.startswith("sqlite:///"):
        return None
    return Path(make_url(tracking_uri).database or "")


def _make_database(tracking_uri: str) -> None:
    """Create the database of a SQLite store, if it does not exist, whole or not at all.

    MLflow creates it by dozens of migrations, and cannot resume them after it was killed.
    """
    from mlflow import MlflowClient

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


def reason(error: Exception) -> str:
    """What an error says, in one line of at most 300 characters, without secrets of addresses."""
    words = map(without_secrets, str(error).split())
    return (" ".join(words) or type(error).__name__)[:300]


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

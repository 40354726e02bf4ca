"""MLflow's registry: names of models, the folder that a name stands for, and the champion.

What opens a store raises as `fetch`. MLflow is imported when it is used.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlparse
from urllib.request import url2pathname

from rerank.errors import InputError, MovedError, RerankError, TrackingError
from rerank.storage.files import lock
from rerank.storage.folder import Workspace
from rerank.tracking.client import named_store, reason, sqlite_file, store, without_secrets
from rerank.tracking.runs import FOLDER, INNER, KEY, TrackedRun, logged_models, tracked_run

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

PREFIX = "calibrated-rerank"
LONGEST_NAME = 200  # characters
CHAMPION = "champion"  # the alias of the registered version that production loads
BEST = "best"  # the alias of the best champion so far, which new ones are compared with
SCHEMES = ("models:/", "runs:/")
UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # how MLflow says "there is none"

_NAME = re.compile(r"[\w.-][\w. -]*")
_URI = re.compile(
    r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))|runs:/(?P<run>[^/]+)/(?P<path>.+)"
)


class Fetched(NamedTuple):
    """A folder that MLflow holds: on this machine the store's own, which must not be changed; else
    a copy inside `temporary`, which the caller removes.
    """

    folder: Path
    temporary: Path | None


def name_of(name: str, dataset: str) -> str:
    """The name of an experiment and of a registered model: `name`, or the set's if it is ""."""
    if not name:
        safe = re.sub(r"[^\w.-]+", "-", dataset).strip("-")
        return f"{PREFIX}-{safe}"[:LONGEST_NAME]
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise InputError(
            f"{name!r} cannot name a model in MLflow; expected at most {LONGEST_NAME} letters, "
            "digits, spaces and . _ -"
        )
    return name


def is_uri(place: str | Path) -> bool:
    """Whether a model is given by its MLflow URI and not by its folder."""
    return str(place).startswith(SCHEMES)


def fetch(uri: str | Path, *, tracking_uri: str | None = None) -> Fetched:
    """The folder at `models:/name@alias`, `models:/name/3` or `runs:/id/path`.

    The store is MLFLOW_TRACKING_URI, else `tracking_uri`, else the database in the folder `work`.
    """
    return folder_at(locate(uri, tracking_uri=tracking_uri), tracking_uri=tracking_uri)


def locate(uri: str | Path, *, tracking_uri: str | None = None) -> str:
    """The location of the files that a URI means now; each version has its own."""
    parts = _URI.fullmatch(str(uri))
    if parts is None:
        raise InputError(f"{uri}: expected models:/name@alias, models:/name/3 or runs:/id/path")
    with _open_client(str(uri), tracking_uri) as client:
        if parts["run"]:
            models = {m.name: m for m in logged_models(client, parts["run"])}
            if parts["path"] in models:
                return str(models[parts["path"]].artifact_location)
            return f"{client.get_run(parts['run']).info.artifact_uri}/{parts['path']}"
        version = _version(client, parts)
        return str(client.get_model_version_download_uri(version.name, version.version))


def run_of(uri: str | Path, key: str, *, tracking_uri: str) -> TrackedRun | None:
    """The run that logged the model that a URI means now; None if it is not known.

    The run must have this record key, so the run of another version is never returned.
    """
    parts = _URI.fullmatch(str(uri))
    if parts is None:
        return None
    with _open_client(str(uri), tracking_uri) as client:
        version = None if parts["run"] else _version(client, parts)
        run_id = version.run_id if version else parts["run"]
        run = client.get_run(run_id) if run_id else None
        if run is None or run.data.tags.get(KEY) != key:
            return None
        place = named_store() or tracking_uri
        number, name = str(version.version) if version else None, parts["name"]
        return tracked_run(client, run, place, version=number, name=name, found=True)


def folder_at(source: str, *, tracking_uri: str | None = None) -> Fetched:
    """The folder at a location that `locate` gave, as from `fetch`."""
    with _open_client(source, tracking_uri):
        from mlflow.artifacts import download_artifacts

        scheme = urlparse(source).scheme
        local = Path(url2pathname(urlparse(source).path) if scheme else source)
        if scheme in ("", "file") and local.is_dir():
            return Fetched(_inner_folder(local), None)
        temporary = Path(tempfile.mkdtemp(prefix="mlflow-"))
        try:
            downloaded = download_artifacts(artifact_uri=source, dst_path=str(temporary))
            return Fetched(_inner_folder(Path(downloaded)), temporary)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def aliases(name: str, *, tracking_uri: str) -> dict[str, str]:
    """The versions of a registered model by alias; {} if there is none."""
    with _open_client(f"the aliases of {name}", tracking_uri, make=True) as client:
        return _aliases(client, name)


def set_champion(
    name: str,
    run_id: str,
    *,
    best: str | None = None,
    before: Mapping[str, str] | None = None,
    tracking_uri: str,
) -> str:
    """Make the version that a run registered the champion, and return its number.

    `best` is the version that stays the best so far; None: this one. `before` are the aliases that
    the decision rests on; None: any. Both are set, or neither. In a store of this machine
    promotions wait for each other; on a server, two at the same moment do not.

    Raises:
        InputError: the run registered no version of that name.
        MovedError: one of the aliases is another than `before`.
    """
    with _open_client(f"run {run_id}", tracking_uri) as client, _one_promotion(tracking_uri):
        versions = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
        if not versions:
            raise InputError(f"run {run_id} registered no version of {name!r}")
        newest = max(versions, key=lambda version: int(version.version))
        now = _aliases(client, name)
        for alias in (CHAMPION, BEST):
            if before is not None and now.get(alias) != before.get(alias):
                raise MovedError(
                    f"{alias} of {name} is version {now.get(alias)} by now, it was "
                    f"{before.get(alias)} when this model was measured; nothing is changed, "
                    "promote again"
                )
        client.set_registered_model_alias(name, CHAMPION, newest.version)
        try:
            client.set_registered_model_alias(name, BEST, best or newest.version)
        except BaseException:
            if CHAMPION in now:
                client.set_registered_model_alias(name, CHAMPION, now[CHAMPION])
            else:
                client.delete_registered_model_alias(name, CHAMPION)
            raise
    return str(newest.version)


def _aliases(client: MlflowClient, name: str) -> dict[str, str]:
    models = client.search_registered_models(f"name = '{name}'")
    return {alias: str(version) for m in models for alias, version in m.aliases.items()}


@contextmanager
def _one_promotion(tracking_uri: str) -> Iterator[None]:
    """Keep other processes from promoting in the same SQLite store meanwhile."""
    database = sqlite_file(named_store() or tracking_uri)
    if database is None:
        yield
        return
    database = database.resolve()  # the same by any link
    with database.with_name(f"{database.name}.promotion").open("ab") as file:
        lock(file.fileno(), wait=True)
        yield


@contextmanager
def _open_client(
    subject: str, tracking_uri: str | None, *, make: bool = False
) -> Iterator[MlflowClient]:
    """A client of the store in use, failing in one sentence; `make` a missing SQLite database."""
    place = named_store() or tracking_uri or Workspace(Path("work")).tracking_uri
    from mlflow.exceptions import MlflowException

    database = sqlite_file(place)
    if not make and database is not None and not database.is_file():
        raise InputError(
            f"{subject} is looked up in {database}, which does not exist; set MLFLOW_TRACKING_URI, "
            "or give the --work folder that the model was tracked in"
        )
    try:
        with store(place) as opened:
            yield opened
    except RerankError:
        raise
    except Exception as error:  # the store is the user's: any client error can come back
        sentence = f"{without_secrets(place)} does not give {subject}: {reason(error)}"
        if isinstance(error, MlflowException) and error.error_code in UNKNOWN:
            raise InputError(sentence) from error
        raise TrackingError(f"{sentence}; check MLFLOW_TRACKING_URI") from error


def _version(client: MlflowClient, parts: re.Match[str]) -> ModelVersion:
    if parts["alias"]:
        return client.get_model_version_by_alias(parts["name"], parts["alias"])
    return client.get_model_version(parts["name"], parts["version"])


def _inner_folder(place: Path) -> Path:
    """The logged folder: inside an MLflow model, or `place` itself if it is no such model."""
    if not place.is_dir():
        raise InputError(f"{place} is no folder; expected what a run logged as {FOLDER!r}")
    return place / INNER if (place / "MLmodel").is_file() else place

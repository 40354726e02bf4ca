"""MLflow's registry: which version is the champion, and the folder that a version or a run holds.

It knows nothing of what a folder means.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from rerank.tracking.client import named_store, store
from rerank.tracking.runs import FOLDER, INNER

CHAMPION = "champion"
"""The alias of the registered version that production loads."""

_URI = re.compile(
    r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))|runs:/(?P<run>[^/]+)/(?P<path>.+)"
)


def champion(name: str, *, tracking_uri: str) -> tuple[str, Path, Path | None] | None:
    """Return the version that is the champion and its folder, as `fetch` gives it; None: none is.

    Raises:
        mlflow.exceptions.MlflowException: the store cannot be reached.
    """
    with store(named_store() or tracking_uri) as client:
        try:
            version = client.get_model_version_by_alias(name, CHAMPION)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise
        return str(version.version), *_folder(_source(client, version))


def crown(name: str, run_id: str, *, tracking_uri: str) -> str:
    """Make the version that a run registered the champion, and return its number.

    Raises:
        ValueError: the run registered no version of that name.
    """
    with store(named_store() or tracking_uri) as client:
        found = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'")
        if not found:
            raise ValueError(f"run {run_id} registered no version of {name!r}")
        newest = max(found, key=lambda version: int(version.version))
        client.set_registered_model_alias(name, CHAMPION, newest.version)
    return str(newest.version)


def fetch(uri: str, *, tracking_uri: str) -> tuple[Path, Path | None]:
    """Return the folder at `models:/name@alias`, `models:/name/3` or `runs:/id/path`.

    Where the store keeps its files on this machine it is the store's own, not to be changed, and
    the second value is None. Else it is a copy, and the second value is the temporary folder that
    holds it, for the caller to remove.

    Raises:
        ValueError: another form of URI, or nothing there.
        mlflow.exceptions.MlflowException: the store cannot be reached, or has no such thing.
    """
    return folder_at(locate(uri, tracking_uri=tracking_uri), tracking_uri=tracking_uri)


def locate(uri: str, *, tracking_uri: str) -> str:
    """Return where the files are that a URI stands for now: another place for another version.

    Raises:
        As `fetch`.
    """
    asked = _URI.fullmatch(uri)
    if asked is None:
        raise ValueError(f"{uri!r}: expected models:/name@alias, models:/name/3 or runs:/id/path")
    with store(named_store() or tracking_uri) as client:
        if asked["run"]:
            return f"{client.get_run(asked['run']).info.artifact_uri}/{asked['path']}"
        if asked["alias"]:
            version = client.get_model_version_by_alias(asked["name"], asked["alias"])
        else:
            version = client.get_model_version(asked["name"], asked["version"])
        return _source(client, version)


def folder_at(source: str, *, tracking_uri: str) -> tuple[Path, Path | None]:
    """Return the folder at a place that `locate` gave, as `fetch` does."""
    with store(named_store() or tracking_uri):
        return _folder(source)


def _source(client: MlflowClient, version: mlflow.entities.model_registry.ModelVersion) -> str:
    return str(client.get_model_version_download_uri(version.name, version.version))


def _folder(source: str) -> tuple[Path, Path | None]:
    """The logged folder at an artefact URI, and the temporary place that holds it, if one does."""
    scheme = urlparse(source).scheme
    local = source if not scheme else url2pathname(urlparse(source).path)
    if scheme in ("", "file") and Path(local).is_dir():
        return _inner(Path(local)), None
    temporary = Path(tempfile.mkdtemp(prefix="mlflow-"))
    try:
        found = mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=str(temporary))
        return _inner(Path(found)), temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _inner(place: Path) -> Path:
    """The folder that was logged: inside an MLflow model, or, where none was made, the place."""
    if not place.is_dir():
        raise ValueError(f"{place} is no folder; expected what a run logged as {FOLDER!r}")
    return place / INNER if (place / "MLmodel").is_file() else place

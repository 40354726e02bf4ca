"""Which version of a registered model a name stands for, and its files on this machine.

`models:/name@alias` or `models:/name/3` in, a folder out. It knows nothing of what that means.
"""

from __future__ import annotations

import re
from pathlib import Path

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

_URI = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def version_of(uri: str, *, tracking_uri: str) -> tuple[str, str]:
    """Return the version that the name stands for now, and where its files are.

    Raises:
        ValueError: another form of name.
        mlflow.exceptions.MlflowException: the store cannot be reached, or has no such version.
    """
    asked = _URI.fullmatch(uri)
    if asked is None:
        raise ValueError(f"{uri!r}: expected models:/name@alias or models:/name/3")
    client = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
    if asked["alias"]:
        found = client.get_model_version_by_alias(asked["name"], asked["alias"])
    else:
        found = client.get_model_version(asked["name"], asked["version"])
    source = client.get_model_version_download_uri(found.name, found.version)
    return str(found.version), str(source)


def download(source: str, to: Path, *, tracking_uri: str) -> Path:
    """Copy a version's files below `to`, and return the folder that was logged.

    Raises:
        mlflow.exceptions.MlflowException: the store cannot be reached.
    """
    place = Path(
        download_artifacts(artifact_uri=source, dst_path=str(to), tracking_uri=tracking_uri)
    )
    inner = place / "artifacts" / "folder"  # where a pyfunc keeps it
    return inner if inner.is_dir() else place

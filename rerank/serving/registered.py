"""Where the model is, by MLflow's name for it: the folder of the version that is meant now."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rerank.types import InputError

SCHEME = "models:/"


def where(model: str, work: Path) -> Callable[[], Path]:
    """What names the model's folder whenever it is asked: a folder always the same.

    `models:/name@champion` is asked of MLFLOW_TRACKING_URI, else of the database in `work`.
    """
    if not model.startswith(SCHEME):
        return lambda: Path(model)
    return Registered(model, work)


class Registered:
    """A registered model. Its files are fetched once a version; the last one's are kept."""

    def __init__(self, uri: str, work: Path) -> None:
        self._uri = uri
        self._database = work / "mlflow.db"
        self._held: tuple[str, Path, tempfile.TemporaryDirectory[str]] | None = None

    def __call__(self) -> Path:
        """The folder of the version that the name stands for.

        Raises:
            InputError: MLflow is not installed, or does not give the model.
        """
        try:
            from calibration import alias
        except ImportError as error:
            raise InputError(f"{self._uri} needs MLflow ({error}); give a folder") from None
        named = os.environ.get("MLFLOW_TRACKING_URI")
        if not named and not self._database.is_file():
            raise InputError(f"{self._uri}: no {self._database}; set MLFLOW_TRACKING_URI")
        store = named or f"sqlite:///{self._database.resolve()}"
        try:
            version, source = alias.version_of(self._uri, tracking_uri=store)
            if self._held is None or self._held[0] != version:
                place = tempfile.TemporaryDirectory(prefix="rerank-fetched-")
                try:
                    folder = alias.download(source, Path(place.name), tracking_uri=store)
                except BaseException:
                    shutil.rmtree(place.name, ignore_errors=True)
                    raise
                self._held = version, folder, place
        except Exception as error:  # the store is the user's: any client error can come back
            raise InputError(f"{store} does not give {self._uri}: {error}") from error
        return self._held[1]

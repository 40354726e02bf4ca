"""Where the model is, by MLflow's name for it: the folder of the version that is meant now."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from weakref import finalize

from rerank.tracking.registry import folder_at, is_uri, locate
from rerank.workspace import Workspace


def where(model: str, work: Path) -> Callable[[], Path]:
    """What names the model's folder whenever it is asked: a folder always the same.

    `models:/name@champion` is asked of MLFLOW_TRACKING_URI, else of the database in `work`.
    """
    if not is_uri(model):
        return lambda: Path(model)
    return Registered(model, work)


class Registered:
    """A registered model. Its files are fetched once a version; the last one's are kept."""

    def __init__(self, uri: str, work: Path) -> None:
        self._uri = uri
        self._store = Workspace(work).tracking_uri
        self._source: str | None = None
        self._folder = Path()
        self._forget: Callable[[], object] = lambda: None

    def __call__(self) -> Path:
        """The folder of the version that the name stands for.

        Raises:
            InputError: MLflow is not installed, or does not give the model.
        """
        source = locate(self._uri, tracking_uri=self._store)
        if source != self._source:
            folder, temporary = folder_at(source, tracking_uri=self._store)
            self._forget()
            self._source, self._folder = source, folder
            if temporary is not None:  # gone with this object, or with the process
                self._forget = finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        return self._folder

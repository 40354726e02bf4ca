"""Where the served model is: a folder, or MLflow's name for one; and the run that logged it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from weakref import finalize

from rerank.errors import RerankError
from rerank.serving.telemetry import event
from rerank.tracking.records import TrackedRun
from rerank.tracking.registry import folder_at, is_uri, locate, run_of
from rerank.tracking.runs import read_note
from rerank.workspace import Workspace


class ModelPlace(Protocol):
    """A place that holds one model after another."""

    def folder(self) -> Path:
        """The folder of the model that is there now.

        Raises:
            RerankError: it is in MLflow, which is not installed or does not provide it.
        """

    def run(self, key: str) -> TrackedRun | None:
        """The MLflow run that logged the model whose manifest has the sha256 `key`, if known."""


def place_of_model(model: str, work: Path) -> ModelPlace:
    """The place that is given by a folder or by MLflow's name, such as `models:/NAME@champion`.

    Such a name is looked up at MLFLOW_TRACKING_URI, else in the database in `work`.
    """
    workspace = Workspace(work)
    return RegisteredModel(model, workspace) if is_uri(model) else ModelInFolder(model, workspace)


class ModelInFolder:
    """A model folder, whose run `work` may have noted when it was tracked."""

    def __init__(self, folder: str, work: Workspace) -> None:
        self._folder, self._work = Path(folder), work

    def folder(self) -> Path:
        """The folder itself."""
        return self._folder

    def run(self, key: str) -> TrackedRun | None:
        """The noted run."""
        return read_note(key, self._work)


class RegisteredModel:
    """A model in the MLflow registry. Each version is fetched once; only the last one is kept."""

    def __init__(self, uri: str, work: Workspace) -> None:
        self._uri = uri
        self._store = work.tracking_uri
        self._source: str | None = None
        self._folder = Path()
        self._remove_copy: Callable[[], object] = lambda: None

    def folder(self) -> Path:
        """The folder of the version that the URI stands for."""
        source = locate(self._uri, tracking_uri=self._store)
        if source != self._source:
            folder, temporary = folder_at(source, tracking_uri=self._store)
            self._remove_copy()
            self._source, self._folder = source, folder
            if temporary is not None:  # removed with this object, or at exit
                self._remove_copy = finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        return self._folder

    def run(self, key: str) -> TrackedRun | None:
        """The run that MLflow names; a store that does not answer keeps no model from serving."""
        try:
            return run_of(self._uri, key, tracking_uri=self._store)
        except RerankError as error:
            event("the model's run is not known", severity=logging.WARNING, why=str(error))
            return None

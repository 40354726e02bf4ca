"""Where the served model is: a folder, or MLflow's name for one; and the run that logged it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from weakref import finalize

from rerank.errors import RerankError
from rerank.serving.telemetry import event
from rerank.tracking.records import TrackedRun
from rerank.tracking.registry import folder_at, is_uri, locate, run_of
from rerank.tracking.runs import read_note
from rerank.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A place that holds one model after another.

    `folder` returns that of the model that is there now, or raises RerankError: it is in MLflow,
    which is not installed or does not provide it. `run` returns the MLflow run that logged the
    model whose manifest has a sha256, if known.
    """

    folder: Callable[[], Path]
    run: Callable[[str], TrackedRun | None]


def place_of_model(model: str, work: Path) -> ModelPlace:
    """The place that is given by a folder or by MLflow's name, such as `models:/NAME@champion`.

    Such a name is looked up at MLFLOW_TRACKING_URI, else in the database in `work`.
    """
    workspace = Workspace(work)
    if not is_uri(model):
        return ModelPlace(lambda: Path(model), lambda key: read_note(key, workspace))
    store = workspace.tracking_uri

    def run(key: str) -> TrackedRun | None:
        try:
            return run_of(model, key, tracking_uri=store)
        except RerankError as error:  # keeps no model from serving
            event("the model's run is not known", severity=logging.WARNING, why=str(error))
            return None

    return ModelPlace(_LastVersion(model, store).folder, run)


class _LastVersion:
    """The folder of a model in the MLflow registry: each version is fetched once."""

    def __init__(self, uri: str, store: str) -> None:
        self._uri, self._store = uri, store
        self._source: str | None = None
        self._folder = Path()
        self._remove_copy: Callable[[], object] = lambda: None

    def folder(self) -> Path:
        source = locate(self._uri, tracking_uri=self._store)
        if source != self._source:
            folder, temporary = folder_at(source, tracking_uri=self._store)
            self._remove_copy()
            self._source, self._folder = source, folder
            if temporary is not None:  # removed with this object, or at exit
                self._remove_copy = finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        return self._folder

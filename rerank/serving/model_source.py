"""The served model: found, copied, loaded, tested, held, and swapped when a new one answers."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import finalize

from calibration.drift import Sketch
from calibration.reliability import Comparison, Reliability
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import MEASURED, REPORT, SECOND
from rerank.assessment.pipeline import Observe
from rerank.assessment.steps import Speed, measured_speed
from rerank.errors import (
    NO_HANDLES,
    NO_SPACE,
    FolderError,
    InputError,
    RerankError,
    RetrieverError,
    led_to,
)
from rerank.protocols import name_of_model
from rerank.report.headline import split_report
from rerank.rooms import load, rooms
from rerank.serving.lineage import lineage, network_name
from rerank.serving.telemetry import Metrics, event
from rerank.storage.files import locked, remove_leftovers, sha256_file
from rerank.storage.folder import MANIFEST, Workspace, read_manifest
from rerank.tracking.registry import folder_at, is_uri, locate, run_of
from rerank.tracking.runs import TrackedRun, read_note

COPIES = Path(tempfile.gettempdir()) / "rerank-serve"  # what copies are named after


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A place that holds one model after another.

    `folder` returns that of the model that is there now, or raises RerankError. `run` returns the
    MLflow run that logged the model whose manifest has a sha256, if known.
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


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model and what the server reports about it."""

    model: CalibratedReranker
    sketch: Sketch | None  # None: not calibrated, or of other features; nothing to compare with
    reliability: Mapping[str, Any]
    headline: list[str]  # the first lines of its report
    loaded: float  # Unix time
    speed: Speed  # of its networks on this machine, measured when it was loaded
    key: str  # sha256 of its manifest
    kept: Mapping[str, Any]  # for a room of the table, by its name
    run: TrackedRun | None = None  # that logged it to MLflow, where that is known

    @property
    def version(self) -> str:
        """The model's version."""
        return self.model.version

    @property
    def reranker(self) -> str:
        """The fingerprint of its cross-encoder; "" if the scores come from other systems."""
        return str(self.model.manifest["fingerprints"].get("reranker", ""))

    def described(self) -> dict[str, Any]:
        """The answer of `/v1/model`."""
        model, manifest, config = self.model, self.model.manifest, self.model.pipeline.config
        names = {
            n: network_name(name_of_model(getattr(config, n))) for n in ("encoder", "reranker")
        }
        networks = {**names, "precision": config.precision}
        return {
            "model": self.version,
            "loaded": self.loaded,
            "fingerprints": manifest["fingerprints"],
            **(networks if model.pipeline.models else dict.fromkeys(networks, "")),
            "segment_by": config.segment_by,
            "segments": sorted(model.segments),
            "stages": list(model.source.kind.stages),
            "passages": len(model.pipeline.index),
            "queries": manifest["queries"],
            "second": manifest.get(SECOND),
            "reliability": {k: v for k, v in self.reliability.items() if k != "curves"},
        }

    def reliability_page(self) -> dict[str, Any]:
        """The answer of `/v1/reliability`; without curves if nothing unseen was measured."""
        manifest, measured = self.model.manifest, self.reliability
        table = measured.get("confidence", {}) if "curves" in measured else {}
        rows = tuple((name, Reliability.from_dict(row)) for name, row in table.items())
        return {
            "model": self.version,
            "name": manifest["name"],
            "headline": self.headline,
            "curves": measured.get("curves", {"bins": [], "thresholds": []}),
            "threshold": self.model.pipeline.config.thresholds.advisory,
            "certificate": self.model.maps.main.certificate.sentence,
            "comparison": Comparison(rows).cells() if rows else [],
            "made_from": lineage(manifest, measured, self.run, key=self.key),
        }


class NoRoomError(InputError):
    """A disk is full, or too many files are open: the same model may be served later."""


def open_model(folder: Path, *, observe: Observe | None = None, **how: Any) -> ServedModel:
    """The model of a folder, ready to answer, and independent of the folder from now on.

    `observe` gets the seconds of each stage; `how` is what `load` takes.

    Raises:
        InputError: the folder is refused, or an answer is not a probability; `NoRoomError` if a
            disk is full, or too many files are open.
    """
    try:
        with _copied(folder) as copy:
            return _open(copy, folder, observe, how)
    except (RerankError, OSError, shutil.Error) as error:
        lack = led_to(error, NO_SPACE | NO_HANDLES)
        known = isinstance(error, RerankError) and not isinstance(error, FolderError)
        if known and not lack:
            raise
        sentence = str(error) if known else f"{folder} cannot be served: {error}"
        raise (NoRoomError if lack else InputError)(sentence) from error


@contextlib.contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    """A copy of the files of a model folder, for as long as the block runs."""
    remove_leftovers(COPIES)  # left by a server that was killed while it copied
    names = {"prefix": f".{COPIES.name}.", "suffix": ".new", "dir": str(COPIES.parent)}
    place = Path(tempfile.mkdtemp(**names))
    try:
        with locked(place):
            copy = place / "model"
            for name in (MANIFEST, *read_manifest(folder)["files"]):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / name, copy / name, follow_symlinks=False)
            yield copy
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _open(copy: Path, folder: Path, observe: Observe | None, how: Mapping[str, Any]) -> ServedModel:
    try:
        model = CalibratedReranker.load(copy, **how)
        reliability = json.loads((copy / MEASURED).read_text(encoding="utf-8"))
        headline = split_report((copy / REPORT).read_text(encoding="utf-8"))[0]
        kept = {n: load(room.of_model)(model) for n, room in rooms().items() if room.of_model}
        sketch = model.sketch if model.maps.main.calibrated else None
    except (OSError, ValueError) as error:
        raise InputError(str(error).replace(str(copy), str(folder))) from None
    if sketch and sketch.names != tuple(model.maps.main.features.ranking):
        sketch = None
    _try(model)
    speed, key = measured_speed(model), sha256_file(copy / MANIFEST)
    for one in model.stages:
        one.pipeline.observe = observe  # only now: the first call also loaded the networks
    return ServedModel(model, sketch, reliability, headline, time.time(), speed, key, kept)


def _try(model: CalibratedReranker) -> None:
    """Let the model answer in each mode, which also loads what is loaded at first use."""
    for found in (found for one in model.stages for found in one.assess(one.probes())):
        numbers = [found.confidence, found.sufficiency, *found.relevance.tolist()]
        if not all(0 <= p <= 1 for p in numbers):
            what = f"the model's answer is not a probability: {numbers[:3]}"
            raise InputError(f"{model.folder}: {what}")


FolderState = tuple[tuple[str, int, int, int], ...]


def folder_state(folder: Path) -> FolderState | None:
    """Name, size, time and inode of each file; () if it is gone, None if that is not known."""

    def fail(error: OSError) -> None:
        raise error

    found = []
    try:
        for place, folders, files in os.walk(folder, onerror=fail):
            for path in (Path(place, name) for name in (*folders, *files)):
                kept = path.lstat()
                name = path.relative_to(folder).as_posix()
                found.append((name, kept.st_size, kept.st_mtime_ns, kept.st_ino))
    except OSError as error:
        return None if error.errno in NO_HANDLES else ()
    return tuple(sorted(found))


def release_memory() -> None:
    """Free the old model's memory: it has reference cycles, and glibc keeps freed memory."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class ModelHolder:
    """Holds the current model and swaps it; an InputError if the first cannot be served.

    `locate` returns the model's folder, `run_of` the MLflow run of a manifest's sha256; `how` is
    what `load` takes. Many threads may read `current`; only one at a time refreshes it.
    """

    def __init__(
        self,
        locate: Callable[[], Path],
        metrics: Metrics,
        *,
        run_of: Callable[[str], TrackedRun | None] = lambda _: None,
        **how: Any,
    ) -> None:
        self._locate, self._run_of, self._how = locate, run_of, how
        self.metrics = metrics
        self._refreshing = threading.Lock()
        self._passing = False  # whether the last failure may be temporary
        self._out_of_reach = False  # whether the place of the model did not answer last time
        folder = locate()
        self._known = self._latest = folder_state(folder)
        self.current = self._open(folder)
        self._show()

    def refresh(self, *, now: bool = False) -> bool:
        """Swap if there is another model and it answers; return whether it was swapped.

        A folder may be half written, so two calls in a row must find it the same, unless `now`. A
        refused folder is tried again if it changes, `now`, or if the failure may pass.
        If the model's place does not answer, that is logged once.
        """
        with self._refreshing:
            before, self._out_of_reach = self._out_of_reach, False
            try:
                folder = self._locate()
            except RerankError as error:
                self._out_of_reach = True
                if now or not before:
                    self._keep_current("the model's place does not answer", error)
                return False
            state = folder_state(folder)
            if state is None:
                return False
            settled, self._latest = state == self._latest, state
            if not now and ((state == self._known and not self._passing) or not settled):
                return False
            start = time.perf_counter()
            try:
                made = self._open(folder)
            except RerankError as error:
                self._passing = isinstance(error, NoRoomError | RetrieverError)
                if now or state != self._known:  # once per content
                    self._known = state
                    self.metrics.swaps.labels("refused").inc()
                    self._keep_current("new model rejected", error)
                return False
            self._known, self._passing = state, False
            if made.version == self.current.version:
                return False
            self.metrics.model.remove(self.current.version)
            self.current = made
            self._show()
            release_memory()
            self.metrics.swaps.labels("swapped").inc()
            event("model swapped", model=made.version, seconds=time.perf_counter() - start)
            return True

    def _keep_current(self, what: str, error: RerankError) -> None:
        about = {"model": self.current.version, "why": str(error)}
        event(f"{what}; keeping the current one", severity=logging.ERROR, **about)

    def _open(self, folder: Path) -> ServedModel:
        try:
            served = open_model(folder, observe=self.metrics.observe_stage, **self._how)
            return replace(served, run=self._run_of(served.key))
        except RerankError:
            raise
        except Exception as error:  # each library fails on a broken file in its own way
            event("model failed to load", severity=logging.WARNING, exc_info=error)
            what = (f"{type(error).__name__}: {error}").strip().splitlines()[0]
            raise InputError(f"{folder} cannot be served: {what}") from error

    def probe(self) -> None:
        """Compare the models behind addresses with those of the fit, and log a change."""
        with self._refreshing:
            model = self.current.model
            before, shifts = model.shifted, model.probe_remote()
            if model.shifted != before:
                self._show()
                why = [shift.sentence for shift in shifts.values()]
                event("models behind addresses have changed", model=model.version, why=why)

    def _show(self) -> None:
        self.metrics.shifted.set(bool(self.current.model.shifted))
        self.metrics.model.labels(self.current.version).set(1)
        self.metrics.loaded.set(self.current.loaded)


class Poller:
    """Calls `work` every `seconds` (0: never), and with True on `poll_now`, until `stop`."""

    def __init__(self, name: str, seconds: float, work: Callable[[bool], object]) -> None:
        self._call, self._seconds = work, seconds
        self._asked, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.start, self.poll_now = self._thread.start, self._asked.set

    def stop(self) -> None:
        """Stop polling, without waiting for a load in progress."""
        self._stopped = True
        self._asked.set()

    def _work(self) -> None:
        while True:
            asked = self._asked.wait(self._seconds or None)
            if self._stopped:
                return
            self._asked.clear()
            try:
                self._call(asked)
            except Exception as error:  # whatever fails, the current model keeps answering
                event(f"{self._thread.name} failed", severity=logging.ERROR, exc_info=error)

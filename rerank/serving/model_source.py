"""One loaded model, proved to answer: what the champion swaps."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import logging
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize

from calibration.monitoring.drift import Sketch
from rerank.assessment.model import CalibratedReranker
from rerank.errors import FolderError, InputError, RerankError
from rerank.serving.telemetry import Metrics, event
from rerank.storage.folder import MANIFEST, read_manifest
from rerank.storage.leftovers import held, sweep
from rerank.tracking.uris import folder_at, is_uri, locate, store_of
from rerank.types import Passage

COPIES = Path(tempfile.gettempdir()) / "rerank-serve"  # what copies are named after
PROBE = "does this model answer"
PROBED = (Passage("0", "", "A model that answers."), Passage("1", "", "Another text."))

Observe = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Served:
    """A model and what is told of it."""

    model: CalibratedReranker
    version: str  # 12 digits of the sha256 of its manifest
    sketch: Sketch
    reliability: Mapping[str, Any]
    loaded: float  # Unix time

    @property
    def reranker(self) -> str:
        """The fingerprint of its cross-encoder."""
        return str(self.model.manifest["fingerprints"]["reranker"])

    def described(self) -> dict[str, Any]:
        """What `/v1/model` answers."""
        manifest, config = self.model.manifest, self.model.pipeline.config
        return {
            "model": self.version,
            "loaded": self.loaded,
            "fingerprints": manifest["fingerprints"],
            "encoder": config.encoder if "/" not in config.encoder else Path(config.encoder).name,
            "reranker": (
                config.reranker if "/" not in config.reranker else Path(config.reranker).name
            ),
            "precision": config.precision,
            "segment_by": config.segment_by,
            "segments": sorted(self.model.maps["search"].segments.updates),
            "passages": len(self.model.pipeline.index),
            "queries": manifest["queries"],
            "reliability": self.reliability,
        }


def open_served(folder: Path, *, observe: Observe | None = None) -> Served:
    """Load the model folder from a copy of its own, check it, and let it answer once.

    Nothing that happens to the folder later reaches the model: its large files are mapped into
    memory from the copy, whose names are gone when this returns. `observe` gets the seconds of
    each stage.

    Raises:
        InputError: the folder cannot be read or is refused, or the model answers with no
            probability.
    """
    with ExitStack() as stack:
        sweep(COPIES)  # what a server that was killed while it copied has left
        place = Path(tempfile.mkdtemp(prefix=f".{COPIES.name}.", suffix=".new", dir=COPIES.parent))
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        stack.enter_context(held(place))
        copy = place / "model"
        try:
            for name in (MANIFEST, *read_manifest(folder)["files"]):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / name, copy / name, follow_symlinks=False)
            manifest = (copy / MANIFEST).read_bytes()
        except (OSError, shutil.Error, FolderError) as error:
            raise InputError(f"{folder} cannot be served: {error}") from None
        try:
            model = CalibratedReranker.load(copy)
            reliability = json.loads((copy / "reliability.json").read_text(encoding="utf-8"))
            sketch = model.sketch
        except (OSError, ValueError) as error:
            raise InputError(str(error).replace(str(copy), str(folder))) from None
        _prove(model)
        if observe is not None:
            _watch(model, observe)
        version = hashlib.sha256(manifest).hexdigest()[:12]
        return Served(model, version, sketch, reliability, time.time())


def _prove(model: CalibratedReranker) -> None:
    """Let the model answer through both doors: what is loaded at the first use is loaded now."""
    for found in (model.search(PROBE), model.rerank(PROBE, PROBED)):
        said = [found.confidence, found.sufficiency, *found.ranking.relevance.tolist()]
        if not all(math.isfinite(p) and 0 <= p <= 1 for p in said):
            raise InputError(f"{model.folder}: the model's answer is no probability: {said[:3]}")


def _watch(model: CalibratedReranker, observe: Observe) -> None:
    """Have the seconds of the two models' work observed."""

    def timed(stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timing(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                observe(stage, time.perf_counter() - start)

        return timing

    encoder, reranker = model.pipeline.encoder, model.pipeline.reranker
    encoder.encode = timed("encode", encoder.encode)  # type: ignore[method-assign]
    reranker.score = timed("read", reranker.score)  # type: ignore[method-assign]


State = tuple[tuple[str, int, int, int], ...]


def state_of(folder: Path) -> State:
    """What tells one content of a folder from another without reading it; () where it is gone."""
    found = []
    try:
        for path in sorted(folder.rglob("*")):
            kept = path.lstat()
            name = path.relative_to(folder).as_posix()
            found.append((name, kept.st_size, kept.st_mtime_ns, kept.st_ino))
    except OSError:
        return ()
    return tuple(found)


def give_back() -> None:
    """Free what the old model held: it has cycles, and glibc keeps freed memory to itself."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class Champion:
    """Where the model comes from, and the one that answers now.

    `current` is read by many threads; one thread at a time looks for another.

    Raises:
        InputError: the model cannot be served.
    """

    def __init__(self, where: Callable[[], Path], metrics: Metrics) -> None:
        self._where = where
        self.metrics = metrics
        self._looking = threading.Lock()
        folder = where()
        self._known = self._latest = state_of(folder)
        self.current = self._open(folder)
        self._tell()

    def look(self, *, now: bool = False) -> bool:
        """Swap if another model is there and answers; whether it was swapped.

        A folder that is being written is waited for: it must be the same at two looks, unless
        `now`. What was refused once is not tried again until it changes, unless `now`.
        """
        with self._looking:
            try:
                folder = self._where()
            except RerankError as error:
                return self._refuse((), error, now=now)
            state = state_of(folder)
            settled, self._latest = state == self._latest, state
            if not now and (state == self._known or not settled):
                return False
            start = time.perf_counter()
            try:
                made = self._open(folder)
            except RerankError as error:
                return self._refuse(state, error, now=now)
            self._known = state
            if made.version == self.current.version:
                return False
            self.metrics.model.remove(self.current.version)
            self.current = made
            self._tell()
            give_back()
            self.metrics.swaps.labels("swapped").inc()
            event("model swapped", model=made.version, seconds=time.perf_counter() - start)
            return True

    def _open(self, folder: Path) -> Served:
        def observe(stage: str, seconds: float) -> None:
            self.metrics.stages.labels(stage).observe(seconds)

        try:
            return open_served(folder, observe=observe)
        except RerankError:
            raise
        except Exception as error:  # a broken file shows in as many ways as there are libraries
            event("model failed to load", severity=logging.WARNING, exc_info=error)
            raise InputError(f"{folder} cannot be served: {type(error).__name__}") from error

    def _refuse(self, state: State, error: RerankError, *, now: bool) -> bool:
        if now or state != self._known:  # once a content
            self._known = state
            self.metrics.swaps.labels("refused").inc()
            event(
                "model refused, the present one stays",
                severity=logging.ERROR,
                model=self.current.version,
                why=str(error),
            )
        return False

    def _tell(self) -> None:
        self.metrics.model.labels(self.current.version).set(1)
        self.metrics.loaded.set(self.current.loaded)


class Watch:
    """Looks for another model every `poll` seconds (0: never) and when told to, until the end.

    Its thread is a daemon's: a store that hangs holds up neither the answers nor the end.
    """

    def __init__(self, champion: Champion, poll: float) -> None:
        self._champion = champion
        self._poll = poll
        self._told = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="watching", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def look_now(self) -> None:
        """Look at once."""
        self._told.set()

    def end(self) -> None:
        """Look no more; what is being loaded is not waited for."""
        self._ended = True
        self._told.set()

    def _work(self) -> None:
        while True:
            told = self._told.wait(self._poll or None)
            if self._ended:
                return
            self._told.clear()
            try:
                self._champion.look(now=told)
            except Exception as error:  # whatever it is, the present model answers
                event("looking for a model failed", severity=logging.ERROR, exc_info=error)


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
        self._store = store_of(work)
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

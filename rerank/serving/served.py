"""One loaded model, proved to answer: what the champion swaps."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.drift import Sketch
from calibration.leftovers import held, sweep
from calibration.store import MANIFEST, StoreError, read_manifest
from rerank.assessor import CalibratedReranker
from rerank.types import InputError, Passage

COPIES = Path(tempfile.gettempdir()) / "rerank-serve"  # what copies are named after
PROBE = "does this model answer"
PROBED = (Passage("0", "", "A model that answers."), Passage("1", "", "Another text."))

FULL = (errno.ENOSPC, errno.EDQUOT)


class NoRoomError(InputError):
    """The disk is full: the same model may be served when there is room."""


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
            "correct_by": config.correct_by,
            "kinds": sorted(self.model.calibrators.kinds.updates),
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
            probability; `NoRoomError`, where there is no room for the copy.
    """
    with ExitStack() as stack:
        sweep(COPIES)  # what a server that was killed while it copied has left
        try:
            names = {"prefix": f".{COPIES.name}.", "suffix": ".new", "dir": str(COPIES.parent)}
            place = Path(tempfile.mkdtemp(**names))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            stack.enter_context(held(place))
            copy = place / "model"
            for name in (MANIFEST, *read_manifest(folder)["files"]):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / name, copy / name, follow_symlinks=False)
            manifest = (copy / MANIFEST).read_bytes()
        except (OSError, shutil.Error, StoreError) as error:
            full = getattr(error, "errno", None) in FULL
            raise (NoRoomError if full else InputError)(
                f"{folder} cannot be served: {error}"
            ) from None
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

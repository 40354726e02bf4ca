"""Gates and confidences of other packages, run in an environment of their own over a pipe.

    ENVIRONMENT/bin/python tests/bench/gates.py < REQUEST

The request is one JSON object: `rows`, each a query with its passages in the order of the
cross-encoder, and what each package may learn from, `labels` by row with None for those that are
measured. The answer has for each package its version and, by row, its confidence and whether it
accepts. Without labels, only packages that learn nothing answer; with labels, the others. One that
is not there, or fails, is left out with the reason. Nothing here knows rerank.
"""

from __future__ import annotations

import json
import math
import sys
from importlib.metadata import version
from typing import Any

PACKAGES = ("rerankgate==0.2.0", "cairn-pipeline==0.1.0", "mapie==1.6.0")
PROMISE_NOTHING = ("rerankgate",)
TARGET, CONFIDENCE = 0.7, 0.95
Answer = tuple[list[float], list[bool]]


def sigmoid(x: float) -> float:
    """Of a logit, without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def rerankgate(rows: list[Any], labels: list[Any]) -> Answer:
    """Its gate over the cross-encoder's sigmoids, with its defaults; it learns nothing."""
    from rerankgate.documents import Chunk
    from rerankgate.gate import SufficiencyGate
    from rerankgate.retrieval import ScoredChunk

    gate, found = SufficiencyGate(), []
    for row in rows:
        evidence = [
            ScoredChunk(
                Chunk(id=str(i), doc_id=str(i), text=p["text"], position=i), sigmoid(p["logit"])
            )
            for i, p in enumerate(row["passages"][:5])
        ]
        found.append(gate.evaluate(row["query"], evidence))
    return [one.score for one in found], [one.passed for one in found]


def cairn(rows: list[Any], labels: list[Any]) -> Answer:
    """Its weighted confidence, and its threshold for an error of 30% at most."""
    from cairn.calibrate.confidence import WeightedConfidence
    from cairn.calibrate.conformal import calibrate
    from cairn.core.types import Chunk, ScoredChunk

    weighted, found = WeightedConfidence(), []
    for row in rows:
        passages = [
            ScoredChunk(
                chunk=Chunk(
                    id=str(i), doc_id=str(i), source="", text=p["text"], start=0, end=1, page=1,
                    ordinal=0,
                ),
                score=p["logit"], stage="rerank", rank=i + 1,
                components={"dense": p["dense"], "bm25": p["bm25"]},
            )
            for i, p in enumerate(row["passages"])
        ]  # fmt: skip
        found.append(weighted.score(row["query"], passages, None, None)[0])
    known = [(c, bool(y)) for c, y in zip(found, labels, strict=True) if y is not None]
    chosen = calibrate(known, 1 - TARGET, 1 - CONFIDENCE)
    return found, [not chosen.abstain_always and c >= chosen.threshold for c in found]


def mapie(rows: list[Any], labels: list[Any]) -> Answer:
    """Its risk control of the precision, over the sigmoid of the best logit."""
    import numpy as np
    from mapie.risk_control import BinaryClassificationController

    found = [max((sigmoid(p["logit"]) for p in row["passages"]), default=0.0) for row in rows]
    both = [(c, y) for c, y in zip(found, labels, strict=True) if y is not None]
    controller = BinaryClassificationController(
        lambda x: np.column_stack([1 - x, x]), "precision", TARGET, confidence_level=CONFIDENCE
    )
    controller.calibrate(*map(np.array, zip(*both, strict=True)))
    if not len(controller.valid_predict_params):
        return found, [False] * len(found)
    return found, [bool(y) for y in controller.predict(np.array(found))]


def main() -> None:
    """One request, one answer."""
    request, answer = json.load(sys.stdin), {}
    learned = any(label is not None for label in request["labels"])
    for package, way in zip(PACKAGES, (rerankgate, cairn, mapie), strict=True):
        name = package.partition("==")[0]
        if learned == (name in PROMISE_NOTHING):
            continue
        try:
            confidences, accepted = way(request["rows"], request["labels"])
            answer[name] = {
                "version": version(name), "confidence": confidences, "accepted": accepted,
            }  # fmt: skip
        except Exception as error:
            print(f"{name} is left out: {type(error).__name__}: {error}", file=sys.stderr)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()

"""Pools the best passages of all stages for a question, in an order unrelated to their ranks.

It knows nothing of labels.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from rerank.assessment.model import CalibratedReranker
from rerank.types import Passage


@dataclass(frozen=True, slots=True)
class PooledPassage:
    """A passage to judge; `doc_ids` are its own id, and those of passages with the same text."""

    passage: Passage
    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """The passages shown for a question, and the model's own answer."""

    shown: tuple[PooledPassage, ...]
    confidence: float
    top: str | None  # id of the passage that the confidence is about; it is in `shown`


def pool(model: CalibratedReranker, text: str, depth: int) -> Pool:
    """The `depth` best of each first stage, fused and by relevance, each passage once.

    The first stages are BM25 and the bi-encoder, or the searches of another system. The passages
    are ordered by a hash of question and passage, so their order is always the same, and is
    unrelated to the stages that found them.
    """
    answer = model.search(text)
    ranking, found = answer.ranking, dict[str, Passage]()
    fused = np.argsort(-ranking.first_stage.fused, kind="stable")
    best = [*ranking.passages[:depth], *(ranking.passages[i] for i in fused[:depth])]
    for passage in (*best, *model.pipeline.best_of_stages(text, depth)):
        found.setdefault(passage.doc_id, passage)
    by_text: dict[str, list[Passage]] = {}
    for passage in found.values():
        by_text.setdefault(" ".join(passage.full_text.split()), []).append(passage)
    groups = sorted(by_text, key=lambda passage: _shuffle_key(text, passage))
    shown = (PooledPassage(by_text[g][0], tuple(p.doc_id for p in by_text[g])) for g in groups)
    return Pool(tuple(shown), answer.confidence, answer.top.doc_id if answer.top else None)


def _shuffle_key(question: str, passage: str) -> str:
    return hashlib.sha256(f"{question}\n{passage}".encode()).hexdigest()

"""Reciprocal rank fusion of two score vectors (Cormack, Clarke & Buettcher, SIGIR 2009)."""

from __future__ import annotations

import numpy as np

from rerank.types import Floats, Ints


def top(scores: Floats, count: int) -> Ints:
    """Rows of the `count` best scores, best first; ties go to the earlier row."""
    count = min(count, len(scores))
    if count < len(scores):
        edge = np.partition(scores, -count)[-count]  # every row at or above it may belong
        rows = np.flatnonzero(scores >= edge)
    else:
        rows = np.arange(len(scores))
    order = np.argsort(-scores[rows], kind="stable")[:count]
    return rows[order].astype(np.int64)


def ranks(found: Ints, size: int, *, missing: int) -> Ints:
    """Rank of every row, shape (size,): 1 for `found[0]`, `missing` for a row not found."""
    place = np.full(size, missing, dtype=np.int64)
    place[found] = np.arange(1, len(found) + 1)
    return place


def reciprocal_rank_fusion(found: list[Ints], size: int, *, k: int = 60) -> Floats:
    """Sum over stages of 1 / (k + rank), shape (size,); a stage that missed a row adds nothing.

    >>> reciprocal_rank_fusion([np.array([2, 0]), np.array([2])], 3, k=60).round(4).tolist()
    [0.0161, 0.0, 0.0328]
    """
    total = np.zeros(size)
    for stage in found:
        total[stage] += 1.0 / (k + np.arange(1, len(stage) + 1))
    return total

"""Reciprocal rank fusion of the stages' lists (Cormack, Clarke & Buettcher, SIGIR 2009)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rerank.types import Bools, FirstStage, Floats, Ints

BLOCK = 512  # scores; the maxima of the blocks bound the best scores from below


def top(scores: NDArray[np.floating], count: int) -> Ints:
    """Rows of the `count` best scores, best first; ties go to the earlier row."""
    count = min(count, len(scores))
    rows = np.arange(len(scores))
    blocks = len(scores) // BLOCK
    if 0 < count < blocks:  # `count` blocks reach the bound, so at least `count` scores do
        highest = scores[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        rows = np.flatnonzero(scores >= np.partition(highest, -count)[-count])
    if 0 < count < len(rows):
        edge = np.partition(scores[rows], -count)[-count]  # every row at or above it may belong
        rows = rows[scores[rows] >= edge]
    order = np.argsort(-scores[rows], kind="stable")[:count]
    return rows[order].astype(np.int64)


def ranks(ranked: Ints, rows: Ints, *, missing: int) -> Ints:
    """The rank of each of `rows` in a stage's list: 1 for `ranked[0]`, `missing` if not in it."""
    place = {int(row): rank for rank, row in enumerate(ranked, 1)}
    return np.array([place.get(int(row), missing) for row in rows], dtype=np.int64)


def reciprocal_rank_fusion(lists: Sequence[Ints], *, k: int = 60) -> tuple[Ints, Floats]:
    """(rows that a stage found, rising; the sum over stages of 1 / (k + rank) for each).

    A stage that missed a row adds nothing to it.

    >>> rows, fused = reciprocal_rank_fusion([np.array([2, 0]), np.array([2])], k=60)
    >>> rows.tolist(), fused.round(4).tolist()
    ([0, 2], [0.0161, 0.0328])
    """
    rows = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *lists]))
    fused = np.zeros(len(rows))
    for stage in lists:
        fused[np.searchsorted(rows, stage)] += 1.0 / (k + np.arange(1, len(stage) + 1))
    return rows, fused


def fused_without(
    stage: FirstStage, removed: Bools, *, pool: int, count: int, rrf_k: int
) -> FirstStage:
    """What a search for `count` of `pool` passages would have found without the `removed` (n,).

    `stage` is what both stages found in a pool larger by the number that may be removed.
    """
    order = np.argsort(stage.rows, kind="stable")
    stage, removed = stage.take(order), removed[order]
    staying = np.flatnonzero(~removed)
    lists = []
    for rank in (stage.bm25_rank[staying], stage.dense_rank[staying]):
        by_rank = np.argsort(rank, kind="stable")
        listed = by_rank[rank[by_rank] <= pool + removed.sum()]
        lists.append(staying[listed][:pool])
    rows_found, scores = reciprocal_rank_fusion(lists, k=rrf_k)
    best = top(scores, count)
    places = rows_found[best]
    kept = stage.take(places)
    bm25_rank, dense_rank = (ranks(f, places, missing=pool + 1) for f in lists)
    return FirstStage(kept.rows, kept.bm25, kept.dense, bm25_rank, dense_rank, scores[best])

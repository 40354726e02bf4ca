"""How good an order is: hit@k, reciprocal rank, nDCG@k.

Plain functions of gains in ranked order. A query without a right passage has no ideal order and is
left out of nDCG and reciprocal rank, as in trec_eval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rerank.types import Floats


def ndcg(gains: Sequence[float], ideal: Sequence[float], *, k: int = 10) -> float:
    """nDCG@k with linear gains and log2 discounts (Jarvelin & Kekalainen 2002), as trec_eval.

    `gains` are the grades in ranked order, `ideal` every positive grade of the query.
    """
    best = _dcg(sorted(ideal, reverse=True)[:k])
    return _dcg(gains[:k]) / best if best > 0 else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return float(sum(g / np.log2(i + 2) for i, g in enumerate(gains)))


def reciprocal_rank(gains: Sequence[float], *, k: int = 10) -> float:
    """1 / rank of the first right passage among the first k; 0 if there is none."""
    return next((1.0 / (i + 1) for i, g in enumerate(gains[:k]) if g > 0), 0.0)


@dataclass(frozen=True, slots=True)
class OrderQuality:
    """Quality by answerable query, in order; hit@1 is by query and includes unanswerable ones."""

    ndcg10: Floats  # (answerable,)
    mrr10: Floats  # (answerable,)
    hit1: Floats  # (n,)


def order_quality(
    runs: Sequence[Sequence[str]], qrels: Sequence[Mapping[str, float]]
) -> OrderQuality:
    """Measure ranked ids against grades: one run and its grades per query, in the same order."""
    pairs = [
        ([q.get(d, 0.0) for d in run], list(q.values())) for run, q in zip(runs, qrels, strict=True)
    ]
    answerable = [(gains, ideal) for gains, ideal in pairs if ideal]
    return OrderQuality(
        np.array([ndcg(gains, ideal) for gains, ideal in answerable]),
        np.array([reciprocal_rank(gains) for gains, _ in answerable]),
        np.array([float(bool(gains) and gains[0] > 0) for gains, _ in pairs]),
    )

"""How good an order is: hit@k, reciprocal rank, nDCG@k; and whether one order beats another.

Plain functions of gains in ranked order. A query without a right passage has no ideal order and is
left out of nDCG and reciprocal rank, as in trec_eval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.metrics import LEAST_GROUPS
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


def paired_bootstrap(
    values: Floats,
    others: Floats,
    groups: Sequence[str],
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """(mean, low, high) of values - others (n,) on the same queries, resampled by group (n,).

    low and high are percentiles of the resampled means. Queries of a group are correlated;
    resampling them one by one would make the interval too narrow (Davison & Hinkley 1997, section
    3.8). All are NaN without queries; the interval is NaN with fewer than `LEAST_GROUPS` groups,
    because resamples of so few are too much alike.
    """
    difference = values - others
    if not len(difference):
        return math.nan, math.nan, math.nan
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums, counts = np.bincount(member, difference), np.bincount(member)
    if len(sums) < LEAST_GROUPS:
        return float(difference.mean()), math.nan, math.nan
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(sums), size=(draws, len(sums)))
    means = sums[rows].sum(axis=1) / counts[rows].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(difference.mean()), float(low), float(high)

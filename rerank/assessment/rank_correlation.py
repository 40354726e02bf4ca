"""Rank correlation of two lists of scores. It knows nothing of what the scores are of."""

from __future__ import annotations

import numpy as np

from rerank.types import Floats


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation with mean ranks for ties (Spearman 1904), in [-1, 1]; 0 where undefined."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(mean_ranks(a), mean_ranks(b))[0, 1])


def mean_ranks(values: Floats) -> Floats:
    """Ranks from 1, lowest first; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[inverse]

"""Spearman's correlation and the ranks it is made of: scipy's numbers, with ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from rerank.assessment.rank_correlation import mean_ranks, spearman

TIED = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12)


@given(pairs=TIED)
def test_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    """With ties, to 1e-12, wherever scipy defines it; else 0."""
    a, b = (np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert spearman(a, b) == 0.0
        return
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


@given(st.lists(st.integers(-3, 3).map(float), max_size=12))
def test_mean_ranks_are_scipys(values: list[float]) -> None:
    """Equal values share the mean of their ranks, as scipy.stats.rankdata does."""
    assert mean_ranks(np.array(values)).tolist() == rankdata(values).tolist()

"""Exact binomial bounds against SciPy's binomial test and against the binomial tail itself."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest

from calibration.thresholds import lower_bound, upper_bound


@pytest.mark.parametrize(("hits", "n"), [(1, 3), (7, 10), (65, 80), (700, 1000), (10, 10)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_bounds_are_scipys(hits: int, n: int, level: float) -> None:
    """Clopper-Pearson as in scipy.stats.binomtest, one-sided."""
    low = binomtest(hits, n, alternative="greater").proportion_ci(level, method="exact").low
    high = binomtest(hits, n, alternative="less").proportion_ci(level, method="exact").high
    assert lower_bound(hits, n, level=level) == pytest.approx(low, abs=1e-12)
    assert upper_bound(hits, n, level=level) == pytest.approx(high, abs=1e-12)


def test_bounds_have_their_meaning() -> None:
    """At the bound, as many hits or more have a chance of exactly 5 %."""
    assert binom.sf(64, 80, lower_bound(65, 80)) == pytest.approx(0.05)
    assert binom.cdf(65, 80, upper_bound(65, 80)) == pytest.approx(0.05)


def test_the_ends() -> None:
    """No hit, no miss and no case at all have the bounds that say nothing."""
    assert (lower_bound(0, 9), upper_bound(9, 9)) == (0.0, 1.0)
    assert (lower_bound(0, 0), upper_bound(0, 0)) == (0.0, 1.0)
    assert upper_bound(0, 9) == pytest.approx(1 - 0.05 ** (1 / 9))


@pytest.mark.parametrize(("hits", "n", "level"), [(3, 2, 0.9), (-1, 2, 0.9), (1, 2, 1.0)])
def test_nonsense_is_refused(hits: int, n: int, level: float) -> None:
    """More hits than cases, or a level of 1, is a mistake of the caller."""
    with pytest.raises(ValueError, match="must lie between 0 and"):
        lower_bound(hits, n, level=level)

"""The rows behind the pictures: as the measurements say, and as a large sample must have them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from calibration.reliability import at_thresholds, measure, reliability_bins


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidences that are true, and labels."""
    rng = np.random.default_rng(0)
    p = rng.uniform(size=n)
    return (rng.uniform(size=n) < p).astype(int), p


def test_bins_hold_every_row_and_lie_in_their_bands() -> None:
    """Each row once; of a true confidence, nearly every dot is where chance puts it."""
    y, p = sample(4000)
    found = reliability_bins(y, p)
    assert sum(bin_.rows for bin_ in found) == 4000
    assert sum(bin_.rows * bin_.accuracy for bin_ in found) == pytest.approx(y.sum())
    assert sum(bin_.rows * bin_.confidence for bin_ in found) == pytest.approx(p.sum())
    assert sum(not bin_.low <= bin_.accuracy <= bin_.high for bin_ in found) <= 2
    wrong = reliability_bins(y, np.clip(p + 0.2, 0, 1))
    assert sum(bin_.low <= bin_.accuracy <= bin_.high for bin_ in wrong) <= len(wrong) / 2


def test_a_threshold_accepts_what_reaches_it() -> None:
    """Counts by hand; the bound is SciPy's exact one where rows are independent."""
    y, p = sample(300)
    low, high, none = at_thresholds(y, p, [0.0, 0.7, 1.0])
    assert (low.rows, low.right) == (300, y.sum())
    kept = p >= 0.7
    assert (high.rows, high.right, high.effective) == (kept.sum(), y[kept].sum(), kept.sum())
    exact = binomtest(high.right, high.rows, alternative="greater").proportion_ci(0.95, "exact").low
    assert high.lower95 == pytest.approx(exact)
    assert (none.rows, none.right, none.lower95) == (0, 0, 0.0)


def test_a_threshold_says_what_a_measurement_says() -> None:
    """Also where rows of a group are alike: they are worth fewer."""
    y, p = (np.repeat(x, 5) for x in sample(80))
    groups = np.repeat(np.arange(80), 5)
    (found,) = at_thresholds(y, p, [0.6], groups=groups)
    measured = measure(y, p, groups=groups, threshold=0.6, draws=10)
    assert found.rows == measured.accepted
    assert found.lower95 == measured.accuracy_accepted_lower95
    assert found.effective == measured.effective_accepted < found.rows / 3


def test_the_bound_of_groups_falls_with_every_wrong_row() -> None:
    """Also from none wrong to one, where nothing is known yet of how rows depend on each other."""
    groups, p = np.repeat(np.arange(16), 5), np.full(80, 0.9)
    bounds = []
    for wrong in ([], [0], [0, 7], [0, 7, 14]):
        y = np.ones(80, dtype=int)
        y[wrong] = 0
        (found,) = at_thresholds(y, p, [0.7], groups=groups)
        bounds.append(found.lower95)
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] == pytest.approx(0.05 ** (1 / 16), abs=0.01)  # as sixteen rows


def test_one_large_group_does_not_decide_the_bound() -> None:
    """A hundred rows about one thing and twenty others: 95% of the bounds lie below the truth."""
    groups, rng = np.repeat(np.arange(21), [100] + [1] * 20), np.random.default_rng(0)
    above = 0
    for _ in range(200):
        rate = rng.beta(7, 3, size=21)[groups]  # 0.7 on average
        (found,) = at_thresholds(rng.random(120) < rate, np.ones(120), [0.5], groups=groups)
        above += found.lower95 > 0.7
    assert above <= 20


def test_large_groups_that_are_worse_are_not_overlooked() -> None:
    """One group in ten has twenty rows and is right three times in ten, the others nine in ten."""
    rng, above = np.random.default_rng(1), 0
    for _ in range(100):
        sizes = np.where(rng.random(100) < 0.1, 20, 1)
        right = rng.random(100) < np.where(sizes == 20, 0.3, 0.9)
        y, groups = np.repeat(right, sizes), np.repeat(np.arange(100), sizes)
        (found,) = at_thresholds(y, np.ones(len(y)), [0.5], groups=groups)
        above += found.lower95 > (0.1 * 20 * 0.3 + 0.9 * 0.9) / (0.1 * 20 + 0.9)
    assert above <= 10

"""Bounds of a mean by group, and of what one model loses to another."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.group_tests import mean_lower_bound, mean_upper_bound
from calibration.metrics.intervals import Estimate, paired_difference, surely_better
from calibration.thresholds import lower_bound


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (14, 20), (20, 20), (150, 200)])
def test_of_single_rows_it_is_the_exact_binomial_bound(hits: int, n: int) -> None:
    """Clopper and Pearson's, but for the draws that it is counted from."""
    labels = np.arange(n) < hits
    assert mean_lower_bound(labels) == pytest.approx(lower_bound(hits, n), abs=0.01)


def test_rows_that_hang_together_tell_less() -> None:
    """Ten groups of twenty equal rows are ten rows, not two hundred."""
    alone = np.arange(10) < 8
    many, groups = np.repeat(alone, 20), np.repeat(np.arange(10), 20)
    assert mean_lower_bound(many, groups) == pytest.approx(mean_lower_bound(alone), abs=0.01)
    assert mean_lower_bound(many) > 0.7 > mean_lower_bound(many, groups)


def test_the_bounds_mirror_each_other() -> None:
    """What is 1 less the values has 1 less the bounds; no row tells nothing."""
    values = np.random.default_rng(0).random(50)
    assert mean_upper_bound(values) == pytest.approx(1 - mean_lower_bound(1 - values))
    assert mean_lower_bound(values) < values.mean() < mean_upper_bound(values)
    assert (mean_lower_bound([]), mean_upper_bound([])) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[0.5, 1.5], [-0.1], [np.nan]])
def test_what_is_no_share_is_refused(values: list[float]) -> None:
    """Each value lies in [0, 1]."""
    with pytest.raises(ValueError, match="must lie"):
        mean_lower_bound(values)


def test_no_difference_in_few_rows_is_no_proof() -> None:
    """The bound of n equal rows is Student's point over n: 1.729 / 20 and 1.660 / 100."""
    few, many = (paired_difference(np.ones(n), np.ones(n)).high for n in (20, 100))
    assert few == pytest.approx(0.0865, abs=1e-4)
    assert many == pytest.approx(0.0166, abs=1e-4)
    assert np.isnan(paired_difference(np.ones(9), np.ones(9)).high)


def test_single_rows_are_agrestis_and_mins() -> None:
    """By hand: of 100 pairs 12 differ one way and 8 the other, and a half more each."""
    ours, theirs = np.zeros(100), np.zeros(100)
    ours[:12], theirs[12:20] = 1, 1
    found = paired_difference(ours, theirs)
    error = np.sqrt(22 - 16 / 102) / 102
    assert found.high - found.mean == pytest.approx(1.645 * error, rel=0.04)


def test_a_difference_is_paired() -> None:
    """Losses that rise and fall together differ by little, whatever their spread."""
    rng = np.random.default_rng(1)
    theirs = rng.random(300)
    found = paired_difference(np.clip(theirs + 0.02, 0, 1), theirs)
    assert found.low < found.mean < found.high < 0.05
    assert found.mean == pytest.approx(0.02, abs=0.001)
    with pytest.raises(ValueError, match="same rows"):
        paired_difference(theirs, theirs[1:])
    with pytest.raises(ValueError, match="losses"):
        paired_difference(theirs + 1, theirs)


def test_what_is_surely_better() -> None:
    """Beyond chance by one measure, and worse by none."""
    gain, level, loss = (
        Estimate(-0.1, -0.2, -0.01),
        Estimate(0, -0.1, 0.1),
        Estimate(0.1, 0, 1),
    )
    assert surely_better([gain, level])
    assert not surely_better([level, level])
    assert not surely_better([gain, loss])

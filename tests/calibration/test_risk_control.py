"""The last of several settings whose risk a sample controls."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.thresholds import fixed_sequence, upper_bound


def test_it_goes_as_far_as_the_bound_allows() -> None:
    """Losses of 0, 1, 6 and 40 in 200: the exact bounds of the first two are below 5%."""
    losses = np.arange(200)[:, None] < np.array([0, 1, 6, 40])
    assert [upper_bound(k, 200) <= 0.05 for k in (0, 1, 6, 40)] == [True, True, False, False]
    assert fixed_sequence(losses) == 1
    assert fixed_sequence(losses, risk=0.3) == 3
    assert fixed_sequence(losses[:20]) == -1


def test_it_stops_at_the_first_failure() -> None:
    """A later setting that looks safe again is luck."""
    losses = np.arange(200)[:, None] < np.array([0, 40, 0])
    assert fixed_sequence(losses) == 0


def test_groups_count_and_not_rows() -> None:
    """Twenty groups of ten equal rows promise no more than twenty rows."""
    alone = np.zeros((20, 1))
    assert fixed_sequence(np.repeat(alone, 10, axis=0)) == 0
    assert fixed_sequence(np.repeat(alone, 10, axis=0), np.repeat(np.arange(20), 10)) == -1


@pytest.mark.parametrize(("losses", "risk"), [([0.1], 0.05), ([[0.1]], 0.0)])
def test_what_is_no_table_or_no_share_is_refused(losses: list[float], risk: float) -> None:
    """The losses and the bound."""
    with pytest.raises(ValueError, match=r"losses|risk"):
        fixed_sequence(losses, risk=risk)

"""The band of rows that a second stage is asked for: against all bands, tried one by one."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.selection import NEVER, Band, choose_band


def best_of_all(first: np.ndarray, gains: np.ndarray, most: float) -> tuple[float, int]:
    """The largest gain of any band within the share, and the fewest rows that have it."""
    found = [(0.0, 0)]
    for low in first:
        for high in first:
            asked = (first >= low) & (first <= high)
            if asked.sum() <= most * len(first):
                found.append((round(float(gains[asked].sum()), 9), -int(asked.sum())))
    return max(found)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [0.1, 0.4, 0.9])
def test_no_band_gains_more_with_fewer_rows(seed: int, most: float) -> None:
    """Also where rows share their confidence, and where most gains are zero or losses."""
    rng = np.random.default_rng(seed)
    first = np.round(rng.random(30), rng.integers(1, 3))
    gains = rng.normal(size=30) * (rng.random(30) < 0.5)
    asked = choose_band(first, gains, most).asks(first)
    gain, rows = best_of_all(first, gains, most)
    assert asked.sum() <= most * 30
    assert gains[asked].sum() == pytest.approx(gain, abs=1e-8)
    assert asked.sum() == -rows


def test_nothing_to_gain_asks_for_nothing() -> None:
    """Nor does a confidence that too many rows share."""
    first = np.linspace(0, 1, 11)
    assert choose_band(first, np.zeros(11), 0.5) == NEVER
    assert choose_band(np.full(11, 0.3), np.ones(11), 0.5) == NEVER
    assert not NEVER.asks(first).any()
    assert Band(0.2, 0.4).asks(first).tolist() == [False] * 2 + [True] * 3 + [False] * 6
    with pytest.raises(ValueError, match="most"):
        choose_band(first, first, 1.0)

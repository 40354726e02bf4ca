"""Checks of arrays and numbers, and their way into JSON."""

from __future__ import annotations

import numpy as np

from calibration.arrays import plain
from calibration.metrics.intervals import UNKNOWN, Estimate


def test_plain_values_by_hand() -> None:
    """A named tuple is an object, another one a list; NaN is null; numbers are Python's."""
    found = plain({"a": Estimate(0.5, *UNKNOWN), "b": (np.float32(2), np.arange(2)), "c": None})
    assert found == {"a": {"mean": 0.5, "low": None, "high": None}, "b": [2.0, [0, 1]], "c": None}
    assert type(found["b"][0]) is float

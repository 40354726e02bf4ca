"""Checks of arrays and numbers, and their way into JSON."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibration.arrays import (
    as_features,
    as_floats,
    as_labels,
    as_scores,
    check_share,
    check_y_p,
    group_codes,
    plain,
)
from calibration.group_tests import mean_lower_bound
from calibration.metrics.intervals import UNKNOWN, Estimate


def test_plain_values_by_hand() -> None:
    """A named tuple is an object, another one a list; NaN is null; numbers are Python's."""
    found = plain({"a": Estimate(0.5, *UNKNOWN), "b": (np.float32(2), np.arange(2)), "c": None})
    assert found == {"a": {"mean": 0.5, "low": None, "high": None}, "b": [2.0, [0, 1]], "c": None}
    assert type(found["b"][0]) is float


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.array([0.5, 0.5j]), "got values of type complex128"),
        ([0.5, 0.5j], "got values of type complex128"),
        (np.ma.masked_array([0.5, 0.5], [True, False]), "got 1 masked: leave them out"),
        (["0.5", "0.5"], "got values of type str"),
        (np.array(["0.5", 0.5], dtype=object), "got text"),
        (np.array(["2026-01-01"] * 2, dtype="M8[D]"), "got values of type datetime64"),
        ([10**400, 0], "too large"),
        ({0.5}, "expected an array of real numbers: .*'set'"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_refused(values: Any, sentence: str) -> None:
    """NumPy would drop the imaginary part, the mask and the quotes, and count the days."""
    with pytest.raises(ValueError, match=sentence):
        check_y_p([0, 1], values)
    with pytest.raises(ValueError, match=sentence):
        check_y_p(values, [0.5, 0.5])
    with pytest.raises(ValueError, match=sentence):
        as_labels(values, 2)
    with pytest.raises(ValueError, match=sentence):
        as_scores(values)
    with pytest.raises(ValueError, match=sentence):
        as_features(values, 1)
    with pytest.raises(ValueError, match=sentence):
        mean_lower_bound(values)


def test_numbers_of_any_type_are_floats() -> None:
    """Booleans, integers, fractions, and a masked array without a mask."""
    whole = np.ma.masked_array([0.0, 1.0])
    for values in ([False, True], [0, 1], [Fraction(0), 1], np.array([0, 1], dtype="u1"), whole):
        assert as_floats(values).tolist() == [0.0, 1.0]
        assert as_floats(values).dtype == np.float64
    same = np.array([0.5])
    assert as_floats(same) is same


def test_a_masked_group_is_refused() -> None:
    """It would be the group of the number that is masked."""
    with pytest.raises(ValueError, match="got 2 masked"):
        group_codes(np.ma.masked_array([1, 2, 2], [False, True, True]), 3)


@pytest.mark.parametrize("value", [0, 1, math.nan, "0.5", True, None])
def test_what_is_no_share_is_named(value: Any) -> None:
    """A share is a number between 0 and 1, both left out."""
    with pytest.raises(ValueError, match=f"level must lie between 0 and 1, got {value}"):
        check_share("level", value)

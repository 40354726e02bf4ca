"""Checks of arrays and numbers, and their way into JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from calibration.arrays import (
    as_features,
    as_floats,
    as_labels,
    as_scores,
    check_share,
    check_y_p,
    finite_number,
    group_codes,
    plain,
)
from calibration.group_tests import mean_lower_bound
from calibration.metrics.intervals import UNKNOWN, Estimate, mean_interval, student_interval

STATISTICS: dict[str, Callable[[Any], object]] = {
    "mean_lower_bound": mean_lower_bound,
    "mean_interval": mean_interval,
    "student_interval": student_interval,
}


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
        (np.array([0.5, np.complex128(0.5j)], dtype=object), "got values of type complex128"),
        (np.array([np.datetime64(0, "s"), 1], dtype=object), "got values of type datetime64"),
        (np.array([np.timedelta64(0, "ns"), 1], dtype=object), "got values of type timedelta64"),
        ([np.ma.masked_array([0.5, 0.5], [False, True])], "got 1 masked"),
        ([np.ma.masked, 0.5], "got 1 masked"),
        (np.array([np.ma.masked, 0.5], dtype=object), "got 1 masked"),
        ([pd.NaT, 0.5], "got values of type NaTType"),
        ({0.5}, "got values of type set"),
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
    for function in STATISTICS.values():
        with pytest.raises(ValueError, match=sentence):
            function(values)


NUMBERS = {
    "truth values": [False, True],
    "whole numbers": [0, 1],
    "fractions": [Fraction(0), 1],
    "decimals": [Decimal(0), Decimal(1)],
    "u1": np.array([0, 1], dtype="u1"),
    "f2": np.array([0, 1], dtype=np.float16),
    "longdouble": np.array([0, 1], dtype=np.longdouble),
    "nothing masked": np.ma.masked_array([0.0, 1.0]),
    "lists of nothing masked": [np.ma.masked_array(0.0), np.ma.masked_array(1.0)],
    "objects": np.array([np.float32(0), np.bool_(True)], dtype=object),
    "arrays without an axis": np.array([np.array(0), 1], dtype=object),
    "tensor": torch.tensor([0.0, 1.0]),
    "tensors": np.array([torch.tensor(0.0), 1], dtype=object),
    "Int64": pd.Series([0, 1], dtype="Int64"),
    "Float64": pd.Series([0, 1], dtype="Float64"),
    "boolean": pd.Series([False, True], dtype="boolean"),
    "category": pd.Series([0, 1], dtype="category"),
    "sparse": pd.Series([0, 1], dtype="Sparse[int]"),
    "column of arrow": pd.Series([0, 1], dtype="int64[pyarrow]"),
    "decimals of arrow": pd.Series([Decimal(0), Decimal(1)]).astype(
        pd.ArrowDtype(pa.decimal128(3))
    ),
    "arrow": pa.array([0, 1]),
}


@pytest.mark.parametrize("values", NUMBERS.values(), ids=NUMBERS)
def test_numbers_of_any_type_are_floats(values: Any) -> None:
    """From Python, NumPy, pandas, Arrow and torch."""
    assert as_floats(values).tolist() == [0.0, 1.0]
    assert as_floats(values).dtype == np.float64


def test_arrays_of_any_shape_are_floats() -> None:
    """Tables, of mixed columns too, and arrays without a row; what is missing is NaN."""
    table = pd.DataFrame({"a": [True, False], "b": pd.Series([0, 1], dtype="Int64")})
    assert as_floats(table).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert as_floats([]).shape == (0,)
    assert as_floats(np.empty((0, 3), dtype=object)).shape == (0, 3)
    assert np.isnan(as_floats([None, Decimal("NaN"), 1])).tolist() == [True, True, False]
    same = np.array([0.5])
    assert as_floats(same) is same


def test_a_masked_group_is_refused() -> None:
    """It would be the group of the number that is masked."""
    with pytest.raises(ValueError, match="got 2 masked"):
        group_codes(np.ma.masked_array([1, 2, 2], [False, True, True]), 3)


@pytest.mark.parametrize("value", [0, 1, math.nan, np.array(1.5), 10**400])
def test_what_is_no_share_is_named(value: Any) -> None:
    """A share is a number between 0 and 1, both left out."""
    with pytest.raises(ValueError, match=f"level must lie between 0 and 1, got {str(value)[:80]}"):
        check_share("level", value)


@pytest.mark.parametrize(
    "value",
    ["0.5", True, None, 0.5j, np.array([0.5]), np.ma.masked, np.timedelta64(1, "ns")],
    ids=repr,
)
def test_what_is_no_number_is_named(value: Any) -> None:
    """Also text of a number, a truth value, and a span of time."""
    for check in (check_share, finite_number):
        with pytest.raises(ValueError, match=re.escape(f"x must be a number, got {str(value)!r}")):
            check("x", value)


@pytest.mark.parametrize(
    "value",
    [0.5, Fraction(1, 2), Decimal("0.5"), np.array(0.5), np.float16(0.5), torch.tensor(0.5)],
    ids=repr,
)
def test_a_number_of_any_type_is_a_float(value: Any) -> None:
    """An array without an axis is the number in it."""
    for check in (check_share, finite_number):
        assert check("x", value) == 0.5
        assert type(check("x", value)) is float

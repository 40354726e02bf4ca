"""Helpers of frozen values: checked numbers, and the same numbers as read-only arrays."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from calibration.arrays import finite_numbers


def arrays_field() -> Any:
    """A dataclass field for a map's numbers as arrays: made once, and not part of its value."""
    return field(init=False, repr=False, compare=False)


def freeze_arrays(value: Any, *numbers: tuple[float, ...]) -> None:
    """Set the field `_arrays` of a map."""
    arrays = tuple(np.array(n, dtype=np.float64) for n in numbers)
    for array in arrays:
        array.setflags(write=False)
    object.__setattr__(value, "_arrays", arrays)


def set_finite_numbers(value: Any, *names: str) -> None:
    """Set fields to tuples of finite floats, or raise a ValueError naming the field."""
    for name in names:
        object.__setattr__(value, name, finite_numbers(name, getattr(value, name)))

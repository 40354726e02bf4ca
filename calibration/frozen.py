"""What frozen maps share: their numbers as arrays, made once and never written to."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from calibration.arrays import finite_numbers


def kept_arrays() -> Any:
    """A field for the numbers of a map as arrays: made once, and no part of its value."""
    return field(init=False, repr=False, compare=False)


def keep_arrays(value: Any, *numbers: tuple[float, ...]) -> None:
    """Set that field of a map."""
    arrays = tuple(np.array(n, dtype=np.float64) for n in numbers)
    for array in arrays:
        array.setflags(write=False)
    object.__setattr__(value, "_arrays", arrays)


def set_numbers(value: Any, *names: str) -> None:
    """Set fields of a map to tuples of finite floats, or say which field is wrong."""
    for name in names:
        object.__setattr__(value, name, finite_numbers(name, getattr(value, name)))

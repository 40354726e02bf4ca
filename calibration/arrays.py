"""Helpers of maps and fits: log odds, and checks of the arrays and numbers that they take.

A check returns what it took, as floats or integers of the shape in its docstring, or raises a
ValueError that says what came and what was expected: another shape, no row, values that are no real
numbers (text, dates, complex, masked), or not finite, or outside their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import wraps
from numbers import Real
from typing import Any, Concatenate, NewType, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
P = ParamSpec("P")
Result = TypeVar("Result")
# the group of each row (n,), whose rows may be dependent
GroupNames = Sequence[Hashable] | NDArray[Any]
Groups = GroupNames | None  # as `GroupNames`; None: every row is independent
# groups as `group_codes` numbers them: what takes these checks them no more
Codes = NewType("Codes", Ints)


def sigmoid(z: ArrayLike) -> Floats:
    """Return `1 / (1 + exp(-z))` element by element, without overflow for any finite z."""
    z = np.asarray(z, dtype=np.float64)
    small = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, small) / (1.0 + small))


def logit(p: ArrayLike) -> Floats:
    """Return `log(p / (1 - p))`, the inverse of `sigmoid`; 0 and 1 give minus and plus infinity."""
    p = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p), dtype=np.float64)


def log_odds(p: ArrayLike) -> Floats:
    """Return the log odds of probabilities, kept 1e-6 away from 0 and 1 so that they are finite."""
    return logit(np.minimum(np.maximum(np.asarray(p, dtype=np.float64), 1e-6), 1 - 1e-6))


def bisect(holds: Callable[[float], bool], inside: float, outside: float, steps: int = 40) -> float:
    """Return where `holds`, true inside and false outside, ends: the outer end of the last step."""
    for _ in range(steps):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return outside


def as_floats(values: ArrayLike) -> Floats:
    """Return real numbers, of any shape, as floats; booleans are 0 and 1, None is NaN."""
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    refuse_masked(values)
    try:
        found = np.asarray(values)
        if found.dtype.kind == "O":
            _check_numbers(found)
        if found.dtype.kind not in "biufO":
            raise ValueError(f"expected real numbers, got values of type {found.dtype.name}")
        return found.astype(np.float64, copy=False)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"expected an array of real numbers: {error}") from None


def _check_numbers(values: NDArray[np.object_]) -> None:
    """Refuse objects that are no real numbers, as which NumPy would take some."""
    for value in values.flat:
        if isinstance(value, (str, bytes)):
            raise ValueError("expected real numbers, got text")
        refuse_masked(value)
        if value is not None and not _is_real(_unwrapped(value)):
            raise ValueError(f"expected real numbers, got values of type {type(value).__name__}")


def _is_real(value: object) -> bool:
    # NumPy counts spans of time as numbers
    return isinstance(value, (Real, Decimal)) and not isinstance(value, np.timedelta64)


def _unwrapped(value: Any) -> Any:
    """The number in an array without an axis, and a truth value of NumPy as Python's."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]  # not `item`, which makes a date a whole number
    tensor = getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic)
    return value.item() if tensor or isinstance(value, np.bool_) else value


def refuse_masked(values: object) -> None:
    """Refuse masked arrays, also in a list, with masked values: NumPy would unmask them."""
    if isinstance(values, (list, tuple)):
        for value in values:
            if not isinstance(value, (float, int, str)):
                refuse_masked(value)
        return
    mask = getattr(values, "mask", None)
    if isinstance(mask, np.ndarray) and mask.any():
        raise ValueError(f"expected a value for each row, got {mask.sum()} masked: leave them out")


def as_scores(scores: ArrayLike) -> Floats:
    """Return one score per row as (n,) floats; (n,) and (n, 1) are accepted."""
    s = as_floats(scores)
    if s.ndim == 2 and s.shape[1] == 1:
        s = s[:, 0]
    if s.ndim != 1:
        raise ValueError(f"expected one score per row, shape (n,), got an array of shape {s.shape}")
    _check_finite(s)
    return s


def as_features(X: ArrayLike, width: int | None = None) -> Floats:
    """Return features as (n, width) floats; (n,) is accepted if width is 1.

    width None: the width of X, which is 1 for shape (n,).
    """
    x = np.asarray(as_floats(X), order="C")  # so that sums run the same way for any caller
    width = width or (x.shape[1] if x.ndim == 2 else 1)
    if x.ndim == 1 and width == 1:
        x = x[:, None]
    if x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"expected features of shape (n, {width}), got shape {x.shape}")
    _check_finite(x)
    return x


def all_finite(x: Floats) -> bool:
    """Whether every number is finite: checks the sum, and each number only if the sum overflows."""
    with np.errstate(over="ignore"):
        total = np.add.reduce(x, axis=None)
    return math.isfinite(total) or bool(np.isfinite(x).all())


def _check_finite(x: Floats) -> None:
    if not all_finite(x):
        wrong = np.argwhere(~np.isfinite(x))
        first = tuple(wrong[0].tolist())
        raise ValueError(
            f"expected finite numbers, got {x[first]} at position {first} "
            f"({len(wrong)} such in all)"
        )


def as_number(name: str, value: object) -> float:
    """Return a real number, which may be infinite or NaN, as a float; text is not a number.

    An array without an axis is the number in it.
    """
    if type(value) is float or type(value) is np.float64:  # as nearly all are
        return float(value)
    number: Any = value if np.ma.is_masked(value) else _unwrapped(value)
    if isinstance(number, bool) or not _is_real(number):
        raise ValueError(f"{name} must be a number, got {str(value)[:80]!r}")
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def finite_number(name: str, value: object) -> float:
    """Return the value as a finite float, as `as_number`."""
    result = as_number(name, value)
    if not math.isfinite(result):
        raise ValueError(f"{name} must be finite, got {str(value)[:80]}")
    return result


def set_finite_numbers(value: Any, *names: str) -> None:
    """Set fields of a frozen value to tuples of finite floats."""
    for name in names:
        numbers = getattr(value, name)
        if not isinstance(numbers, (list, tuple, np.ndarray)):
            raise ValueError(f"{name} must be a list of numbers, got {str(numbers)[:80]!r}")
        if not len(numbers):
            raise ValueError(f"{name} must have at least one number, got none")
        object.__setattr__(value, name, tuple(finite_number(name, number) for number in numbers))


def freeze_arrays(value: Any, *numbers: tuple[float, ...]) -> None:
    """Set the field `_arrays` of a map to read-only arrays."""
    arrays = tuple(np.array(n, dtype=np.float64) for n in numbers)
    for array in arrays:
        array.setflags(write=False)
    object.__setattr__(value, "_arrays", arrays)


def check_probabilities(p: ArrayLike) -> Floats:
    """Return p as (n,) floats."""
    values = as_floats(p)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected probabilities of shape (n,), n >= 1, got {values.shape}")
    if not (values.min() >= 0 and values.max() <= 1):
        wrong = values[~((values >= 0) & (values <= 1))]
        raise ValueError(f"probabilities must lie in [0, 1], got {wrong[0]} ({len(wrong)} in all)")
    return values


def as_labels(y: ArrayLike, n: int) -> Ints:
    """Return y as (n,) integers 0 and 1."""
    labels = as_floats(y)
    if labels.shape != (n,) or n == 0:
        raise ValueError(f"expected one label per row for {n} rows, got shape {labels.shape}")
    _check_labels(labels)
    return labels.astype(np.int64)


def as_weights(sample_weight: ArrayLike | None, n: int) -> Floats:
    """Return (n,) weights, none negative and not all 0; None: each row counts once."""
    if sample_weight is None:
        return np.ones(n)
    w = as_floats(sample_weight)
    if w.shape != (n,) or not (np.isfinite(w) & (w >= 0)).all() or not w.any():
        raise ValueError(f"expected a sample_weight per row of {n}, none below zero, not all zero")
    return w


def _check_labels(labels: Floats) -> None:
    other = labels[(labels != 0) & (labels != 1)]
    if len(other):
        raise ValueError(f"labels must be 0 or 1, got {other[0]:g}")


def check_y_p(y: ArrayLike, p: ArrayLike) -> tuple[Floats, Floats]:
    """Return (y, p) as floats of shape (n,)."""
    values, labels = check_probabilities(p), as_floats(y)
    if labels.shape != values.shape:
        raise ValueError(f"y has shape {labels.shape} and p has shape {values.shape}")
    _check_labels(labels)
    return labels, values


def checked(
    metric: Callable[Concatenate[Floats, Floats, P], Result],
) -> Callable[Concatenate[ArrayLike, ArrayLike, P], Result]:
    """The metric of labels y (n,) and probabilities p (n,) that `check_y_p` has not seen yet."""

    @wraps(metric)
    def door(y: ArrayLike, p: ArrayLike, /, *args: P.args, **options: P.kwargs) -> Result:
        return metric(*check_y_p(y, p), *args, **options)

    return door


def plain(value: Any) -> Any:
    """Return the value as plain JSON: arrays and tuples become lists, NaN becomes None.

    A named tuple becomes an object of its fields. Numbers of NumPy become those of Python.
    """
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def check_keys(name: str, d: object, keys: Iterable[str]) -> None:
    """Refuse what is not a mapping with exactly these keys."""
    keys = tuple(keys)
    if not isinstance(d, Mapping):
        raise ValueError(f"expected {name} with the keys {', '.join(keys)}, got {d!r:.80}")
    missing, unknown = sorted(set(keys) - set(d)), sorted(map(str, set(d) - set(keys)))
    if missing or unknown:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has the unknown {', '.join(unknown)}"] if unknown else []
        raise ValueError(f"{name} {' and '.join(wrong)}; its keys are {', '.join(keys)}")


def group_codes(groups: Groups, n: int) -> Codes:
    """Return (n,) group numbers 0, 1, ... in sorted order; None: every row is its own group."""
    if groups is None:
        return Codes(np.arange(n, dtype=np.int64))
    refuse_masked(groups)
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"expected one group per row, shape ({n},), got shape {labels.shape}")
    kinds = {type(label) for label in (groups if labels.dtype.kind in "OU" else ())}
    if len({issubclass(kind, str) for kind in kinds}) > 1 or type(None) in kinds:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"expected groups that are all text or all numbers, got {names}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("expected a group for each row, got NaN")
    return Codes(np.unique(labels, return_inverse=True)[1].astype(np.int64))


def check_share(name: str, value: object) -> float:
    """Return a number within (0, 1) as a float."""
    share = as_number(name, value)
    if not 0 < share < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!s:.80}")
    return share

"""The numbers behind pictures of a confidence: its bins, and what each threshold would accept.

Arrays in, plain rows out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Groups, check_y_p, group_codes, plain
from calibration.effective_sample_size import effective_n
from calibration.group_tests import mean_lower_bounds
from calibration.metrics.binned import bins, consistency_band
from calibration.thresholds import lower_bound


class Bin(NamedTuple):
    """Rows of about the same confidence."""

    confidence: float  # the mean
    accuracy: float  # the share that is right
    rows: int
    low: float  # the share's 95% range if the confidence is exact
    high: float


class Accepted(NamedTuple):
    """The rows that reach a threshold."""

    threshold: float
    rows: int
    right: int
    effective: float  # effective number of rows
    lower95: float  # of the share that is right; 0.0 without rows


class Curves(NamedTuple):
    """Bins and thresholds of the same rows."""

    bins: list[Bin]
    thresholds: list[Accepted]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: the rows of each as objects with named fields."""
        values: dict[str, Any] = plain(self)
        return values


def reliability_bins(y: ArrayLike, p: ArrayLike, *, groups: Groups = None) -> list[Bin]:
    """The dots of a reliability diagram: labels y (n,) of 0 and 1, confidences p (n,) in [0, 1].

    Bins have about equally many rows; `groups` (n,) widen their bands as in `consistency_band`.

    Raises:
        ValueError: as `calibration.arrays.check_y_p`.
    """
    labels, values = check_y_p(y, p)
    number = bins(values)
    rows = np.bincount(number)
    means = (np.bincount(number, x) / rows for x in (values, labels))
    table = np.column_stack([*means, rows, *consistency_band(labels, values, groups=groups)])
    return [Bin(p, share, int(n), low, high) for p, share, n, low, high in table.tolist()]


def at_thresholds(
    y: ArrayLike, p: ArrayLike, thresholds: Iterable[float], *, groups: Groups = None
) -> list[Accepted]:
    """What each threshold accepts of the same rows, with a 95% lower bound of the share right.

    It is that of Clopper and Pearson (1934) for the effective number of accepted rows; if rows
    share their group (n,), that of `calibration.group_tests.mean_lower_bound` where it is lower: a
    few groups may be alike by chance, which the effective number would not show.

    Raises:
        ValueError: as `calibration.arrays.check_y_p`.
    """
    labels, values = check_y_p(y, p)
    number, at = group_codes(groups, len(labels)), np.array(list(thresholds), dtype=np.float64)
    reached = values >= at[:, None]
    single = int(number.max(initial=-1)) + 1 == len(number)
    bounds = np.ones(len(at)) if single else mean_lower_bounds(labels, reached, number)
    return [
        _accepted(labels[part], number[part], t, bound)
        for part, t, bound in zip(reached, at.tolist(), bounds.tolist(), strict=True)
    ]


def _accepted(labels: Floats, groups: Groups, threshold: float, of_groups: float) -> Accepted:
    n, right = len(labels), int(labels.sum())
    if not n:
        return Accepted(threshold, 0, 0, 0.0, 0.0)
    effective = effective_n(labels - right / n, group_codes(groups, n))
    of_rows = lower_bound(right / n * effective, effective)
    return Accepted(threshold, n, right, effective, min(of_rows, of_groups))

"""Agreement of two annotators, corrected for chance. Labels in, a number with its interval out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.arrays import Groups, group_codes
from calibration.effective_sample_size import effective_groups, grouped_standard_error
from calibration.metrics.intervals import LEVEL, student_point


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cohen's kappa of n items, at most 1, with its 95% interval; NaN where unknown."""

    n: int
    same: float  # share of the items with the same label
    kappa: float
    low: float
    high: float


def cohens_kappa(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    groups: Groups = None,
) -> Agreement:
    """Return Cohen's kappa (1960) of two sequences of labels, (n,) each, with its 95% interval.

    The interval is kappa plus or minus Student's t times the standard error of Fleiss, Cohen and
    Everitt (1969), clipped to [-1, 1]. If items of one group (n,) are dependent, the error's terms
    are summed by group. kappa is NaN if chance alone would always agree (every item has one label).
    The interval is NaN with fewer than two groups, and if the estimated error is 0, as when the two
    never differ: the spread is then unknown.

    Raises:
        ValueError: no item, or sequences of different lengths.
    """
    n, nan = len(first), float("nan")
    if not n or len(second) != n:
        raise ValueError(f"expected as many labels of each, at least one; got {n}, {len(second)}")
    names = {label: k for k, label in enumerate(dict.fromkeys([*first, *second]))}
    a, b = (np.array([names[label] for label in labels]) for labels in (first, second))
    rows, columns = (np.bincount(x, minlength=len(names)) / n for x in (a, b))
    equal = (a == b).astype(float)
    same, chance = float(equal.mean()), float(rows @ columns)
    if chance >= 1 - 1e-12:
        return Agreement(n, same, nan, nan, nan)
    kappa = (same - chance) / (1 - chance)
    influence = (equal - same) / (1 - chance)
    influence -= (1 - same) * (columns[a] + rows[b] - 2 * chance) / (1 - chance) ** 2
    number = group_codes(groups, n)
    n_groups, error = int(number.max()) + 1, grouped_standard_error(influence, number)
    if n_groups < 2 or error < 1e-12:
        return Agreement(n, same, kappa, nan, nan)
    room = student_point(LEVEL, effective_groups(number)) * error
    return Agreement(n, same, kappa, max(-1.0, kappa - room), min(1.0, kappa + room))

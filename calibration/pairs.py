"""Two judgements of the same rows: the agreement of annotators, and whether losses are no worse."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Groups, as_floats, group_codes
from calibration.effective_sample_size import effective_groups, grouped_standard_error
from calibration.metrics.intervals import LEVEL, Estimate, student_interval, student_point


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cohen's kappa of n items, at most 1, with its 95% interval; NaN where unknown."""

    n: int
    same: float  # share of the items with the same label
    kappa: float
    low: float
    high: float


def cohens_kappa(
    first: Sequence[Hashable], second: Sequence[Hashable], groups: Groups = None
) -> Agreement:
    """Return Cohen's kappa (1960) of two sequences of labels, (n,) each, with its 95% interval.

    The interval is kappa plus or minus Student's t times the standard error of Fleiss, Cohen and
    Everitt (1969), its terms summed by group (n,), clipped to [-1, 1]. kappa is NaN if every item
    has one label; the interval with fewer than two groups, and if the two never differ.
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


def paired_difference(losses: ArrayLike, others: ArrayLike, groups: Groups = None) -> Estimate:
    """Return how much larger losses (n,) are than `others` (n,) on the same rows, all in [0, 1].

    The true difference is beyond each bound with probability at most about 5%, if it is spread over
    many groups; above `high` in 11% to 35% of the samples of 40 to 100 groups if one in twenty
    differs wholly and the others not at all.

    `high` below a margin is the test of non-inferiority (Blackwelder 1982) at level 5%. These are
    Student's bounds of the mean difference, by group (n,), with the variance of one more row whose
    difference is 1. For single rows of 0 and 1 this is Agresti and Min (2005), who add a half to
    each cell, so a few rows without any difference prove nothing. The bounds are NaN with fewer
    than `MIN_GROUPS` groups.
    """
    ours, theirs = as_floats(losses), as_floats(others)
    if ours.shape != theirs.shape or ours.ndim != 1 or not len(ours):
        raise ValueError(f"expected losses of the same rows, got {ours.shape} and {theirs.shape}")
    for values in (ours, theirs):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError("losses must lie in [0, 1]")
    return student_interval(ours - theirs, groups, unseen=1.0, level=0.9)


def surely_better(differences: Sequence[Estimate]) -> bool:
    """Whether a model is significantly better by some measure, and on average worse by none.

    Each difference is tested at the level of its bounds, so with two of them an equal model is
    called better more often than at one level: in 6.8% of the cases instead of 5%.
    """
    return all(d.mean <= 0 for d in differences) and any(d.high < 0 for d in differences)

"""Is one model no worse than another by more than a margin? Losses of the same rows in, bounds out.

It knows nothing of what a row or a loss is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Groups, as_floats, group_codes
from calibration.effective_sample_size import effective_groups, grouped_standard_error
from calibration.metrics.intervals import MIN_GROUPS, UNKNOWN, Estimate, student_point


def paired_difference(losses: ArrayLike, others: ArrayLike, groups: Groups = None) -> Estimate:
    """Return how much larger losses (n,) are than `others` (n,) on the same rows, all in [0, 1].

    The true difference is beyond each bound with probability at most about 5%, if it is spread over
    many groups. If one group in twenty differs wholly and the others not at all, 40 to 100 groups
    often hold too few of these to show it: the true difference is above `high` in 11% to 35% of
    such samples. No bound can be narrow for small differences and hold there too.

    `high` below a margin is the test of non-inferiority (Blackwelder 1982) at level 5%. These are
    Student's bounds of the mean difference, by group (n,), with the variance of one more row whose
    difference is 1. For single rows of 0 and 1 this is Agresti and Min (2005), who add a half to
    each cell, so a few rows without any difference prove nothing. The bounds are NaN with fewer
    than `MIN_GROUPS` groups.

    Raises:
        ValueError: no rows, shapes that differ, or a loss outside [0, 1].
    """
    ours, theirs = as_floats(losses), as_floats(others)
    if ours.shape != theirs.shape or ours.ndim != 1 or not len(ours):
        raise ValueError(f"expected losses of the same rows, got {ours.shape} and {theirs.shape}")
    for values in (ours, theirs):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError("losses must lie in [0, 1]")
    worse, number = ours - theirs, group_codes(groups, len(ours))
    n_groups, mean = int(number.max()) + 1, float(worse.mean())
    if n_groups < MIN_GROUPS:
        return Estimate(mean, *UNKNOWN)
    error = np.hypot(grouped_standard_error(worse, number), 1 / len(worse))
    room = student_point(0.9, effective_groups(number)) * float(error)
    return Estimate(mean, mean - room, mean + room)


def surely_better(differences: Sequence[Estimate]) -> bool:
    """Whether a model is significantly better by some measure, and on average worse by none.

    Each difference is tested at the level of its bounds, so with two of them an equal model is
    called better more often than at one level: in 6.8% of the cases instead of 5%.
    """
    return all(d.mean <= 0 for d in differences) and any(d.high < 0 for d in differences)

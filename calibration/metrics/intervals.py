"""Dependent rows: how many independent ones they are worth, and 95% intervals that allow for it.

Of a mean, an AUROC, and two judgements of the same rows. Labels, confidences and groups in, numbers
out. It knows nothing of what the groups are.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Codes, Floats, Groups, as_floats, bisect, group_codes, logit, sigmoid

LEVEL = 0.95  # probability with which each interval holds the true value
MIN_GROUPS = 10  # with fewer groups of rows, the spread is unknown and there is no interval

Interval = tuple[float, float]  # low and high

UNKNOWN: Interval = (math.nan, math.nan)


def design_effect(residuals: Floats, number: Codes) -> float:
    """Return how many of the rows are as informative as one independent row: 1 to n.

    residuals (n,): the averaged values minus their mean or expectation. The result is the variance
    of the sum by groups (n,) over that by rows (Kish 1965; Rao and Scott 1992), with G / (G - 1)
    for few groups, and at least 1: chance alone produces less as well.
    """
    n, n_groups = len(residuals), int(number.max(initial=-1)) + 1
    rows = float((residuals**2).sum())
    if n_groups == n or rows <= 0:
        return 1.0 if n_groups == n else kish(number)
    if n_groups < 2:
        return float(n)
    between = float((np.bincount(number, residuals) ** 2).sum()) * n_groups / (n_groups - 1)
    return float(min(max(1.0, between / rows), n))


def kish(number: Codes) -> float:
    """Return the design effect of groups (n,) of identical rows: sum of sizes^2 / n."""
    return float((np.bincount(number) ** 2).sum() / len(number))


def effective_groups(number: Codes) -> float:
    """Return the effective number of groups (n,) of unequal sizes: n / `kish`.

    A few large groups decide a mean, so its spread is known no better than from that many groups of
    equal size (Satterthwaite 1946).
    """
    return len(number) / kish(number)


def effective_n(residuals: Floats, number: Codes) -> float:
    """Return the effective number of the rows: n / `design_effect`."""
    return len(residuals) / design_effect(residuals, number)


def effective_rows(x: Floats, number: Codes) -> float:
    """Return the effective number of the rows of x (n, d), n >= 1, at most n.

    It is that of the column whose rows depend most on each other within groups (n,). A column's
    design effect is the mean over indicators: at most, and below, each of its three quartiles. It
    is capped at `kish`, the case of identical rows in a group.
    """
    if number.max(initial=0) + 1 == len(x):
        return float(len(x))
    effects = []
    for column in x.T:
        quartiles = np.quantile(column, [0.25, 0.5, 0.75])
        below = np.hstack([column[:, None] <= quartiles, column[:, None] < quartiles])
        shares = [indicator - indicator.mean() for indicator in below.T if 0 < indicator.mean() < 1]
        if shares:
            effects.append(float(np.mean([design_effect(share, number) for share in shares])))
    return len(x) / min(max(effects, default=np.inf), kish(number))


def grouped_standard_error(values: Floats, number: Codes) -> float:
    """Return the standard error of the mean of values (n,), whose groups (n,) are independent.

    The cluster-robust formula: the root of the summed squares of the groups' sums of deviations,
    over n, times sqrt(G / (G - 1)). One group gives infinity: the spread is unknown.
    """
    sums = np.bincount(number, weights=values - values.mean())
    if len(sums) < 2:
        return float("inf")
    return float(np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1)) / len(values))


def student_point(level: float, groups: float) -> float:
    """Return the upper (1 - level) / 2 point of Student's t with groups - 1 degrees of freedom.

    Give the `effective_groups`: with their number, intervals of unequal groups would be too narrow.
    """
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, (1 + level) / 2))


class Estimate(NamedTuple):
    """A mean and its interval, which is NaN where the spread is unknown."""

    mean: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        """Low and high."""
        return self.low, self.high


def student_interval(
    values: ArrayLike,
    groups: Groups = None,
    *,
    least_groups: int = MIN_GROUPS,
    unseen: float = 0.0,
    level: float = LEVEL,
) -> Estimate:
    """Return the mean of values (n,) with Student's interval, by group (n,).

    The standard error is the cluster-robust one, with the variance of one more row whose value is
    `unseen`: rows that all agree do not show that no other row disagrees (Agresti and Min 2005).
    The interval is NaN with fewer than `least_groups` groups; without values all is NaN.
    """
    v = as_floats(values)
    if not len(v):
        return Estimate(math.nan, *UNKNOWN)
    number, mean = group_codes(groups, len(v)), float(v.mean())
    if int(number.max()) + 1 < least_groups:
        return Estimate(mean, *UNKNOWN)
    error = float(np.hypot(grouped_standard_error(v, number), unseen / len(v)))
    room = student_point(level, effective_groups(number)) * error
    return Estimate(mean, mean - room, mean + room)


def mean_interval(values: ArrayLike, groups: Groups = None) -> Interval:
    """Return (low, high), in [0, 1], of the mean of values (n,) in [0, 1], by group (n,).

    Student's interval of the log odds of the mean. A sample shows only that groups unlike all of
    its own are rare, fewer than 1 - 0.025^(1 / groups), whose values may all be 0, or all 1: the
    interval is no narrower than these allow. (NaN, NaN) with fewer than `MIN_GROUPS` groups.
    """
    v = as_floats(values)
    if not len(v):
        return UNKNOWN
    number = group_codes(groups, len(v))
    n_groups, mean = int(number.max()) + 1, float(v.mean())
    if n_groups < MIN_GROUPS:
        return UNKNOWN
    known = effective_groups(number)
    unseen = 1 - ((1 - LEVEL) / 2) ** (1 / known)
    least, most = (1 - unseen) * mean, (1 - unseen) * mean + unseen
    error = grouped_standard_error(v, number)
    if error < 1e-12:
        return least, most
    room = student_point(LEVEL, known) * error / (mean * (1 - mean))
    low, high = sigmoid(float(logit(mean)) + np.array([-room, room])).tolist()
    return min(low, least), max(high, most)


def auroc_interval(y: Floats, p: Floats, groups: Groups = None) -> Interval:
    """Return (low, high), in [0, 1], of the AUROC, by group (n,).

    It contains every A within z standard errors *at A* of the measured one (Newcombe 2006, method
    5, with the variance of Hanley and McNeil 1982), so it is not a point if the classes are
    separated. If the variance of the rows' own placements, summed by group (Obuchowski 1997), is
    larger, it is scaled up by their ratio; if the classes are separated, by the mean size of a
    group. (NaN, NaN) for one class, and with fewer than `MIN_GROUPS` groups.
    """
    number = group_codes(groups, len(y))
    n_groups = int(number.max()) + 1
    hits, misses = np.sort(p[y == 1]), np.sort(p[y == 0])
    if n_groups < MIN_GROUPS or not len(hits) or not len(misses):
        return UNKNOWN
    of_hit = _share_below(misses, p[y == 1])
    area = float(of_hit.mean())
    moves = np.empty(len(y))
    moves[y == 1] = (of_hit - area) / len(hits)
    moves[y == 0] = (1 - _share_below(hits, p[y == 0]) - area) / len(misses)

    def variance(a: float) -> float:
        pairs = (len(hits) + len(misses)) / 2 - 1
        spread = 1 + pairs * ((1 - a) / (2 - a) + a / (1 + a))
        return a * (1 - a) * spread / (len(hits) * len(misses))

    expected = variance(area)
    measured = float((np.bincount(number, moves) ** 2).sum()) * n_groups / (n_groups - 1)
    wider = max(1.0, measured / expected) if expected > 0 else len(y) / n_groups
    z = student_point(LEVEL, effective_groups(number))

    def is_near(a: float) -> bool:
        return bool(abs(area - a) <= z * np.sqrt(wider * variance(a)))

    return bisect(is_near, area, 0.0), bisect(is_near, area, 1.0)


def _share_below(ordered: Floats, values: Floats) -> Floats:
    """The share of `ordered` below each value, ties half."""
    left, right = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return np.asarray((left + right) / (2 * len(ordered)), dtype=np.float64)


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

    Kappa plus or minus Student's t times the standard error of Fleiss, Cohen and Everitt (1969),
    its terms summed by group (n,), clipped to [-1, 1]. kappa is NaN if every item has one label;
    the interval with fewer than two groups, and if the two never differ.
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
    difference is 1 (for single rows of 0 and 1, Agresti and Min 2005), so a few rows without any
    difference prove nothing. NaN with fewer than `MIN_GROUPS` groups.
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

    Each difference is tested at the level of its bounds: with two of them an equal model is called
    better in 6.8% of the cases instead of 5%.
    """
    return all(d.mean <= 0 for d in differences) and any(d.high < 0 for d in differences)

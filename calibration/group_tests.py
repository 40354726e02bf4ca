"""The test behind a certificate for new groups: groups are exchangeable, their rows are not.

Labels by falling confidence and the numbers of their groups in, tail probabilities out. The rows of
a group may depend on each other in any way, so many rows in a few large groups prove little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Bools, Floats, Groups, Ints, as_floats, group_codes

LEVEL = 0.95
"""Confidence of a bound: how likely the mean is on the right side of it."""

DRAWS = 2000
"""Random weightings per tail probability; at a tail of 2.5% its standard error is 0.35%."""

BOUND_DRAWS = 9_999
"""Random weightings per bound."""

CELLS = 2_000_000
"""Numbers held in memory at once."""

FIRST_GROUPS = 12
"""Groups of equal size at the first start of a test sequence; each next one has twice as many."""


def group_tails(labels: Floats, number: Ints, target: float) -> tuple[Floats, Floats]:
    """Test, for every k, that no more than `target` of the first k rows are right.

    Returns (n,) p-values, and (n,) how many groups of the size of the largest the first k rows
    amount to. For a group that has m of its rows among the first k, h of them right, let S = h -
    target m. The null hypothesis is E[S] <= 0 for a new group: no more than `target` of the rows of
    new groups are right.

    The p-value is P(sum of S_g E_g <= target M E_0): independent exponentials weigh the groups (n,)
    and one extra group, which is as large as the largest (M) and all wrong. So it is the share of
    Bayesian bootstraps that fail with the worst case added (Gaffke 2005, "Three test statistics for
    a nonparametric one-sided hypothesis on the mean of a nonnegative variable"; Learned-Miller and
    Thomas 2019, "A new confidence interval for the mean of a bounded random variable"). If every
    group is one row, it is the exact binomial tail. Validity in samples of any size, for any
    bounded S, is proved for two values and otherwise their conjecture, which `make promise` tests.
    No test can detect groups that are larger than any seen.

    labels (n,) of 0 and 1, the most confident first; number (n,): their groups, from 0. The `DRAWS`
    exponentials are always the same, and go to the groups in the order of their first rows: names
    of groups change nothing.
    """
    n, number = len(labels), _by_first_row(number)
    n_groups = int(number.max()) + 1
    largest = _largest(number)
    gain = (labels - target).astype(np.float32)
    worst, rng = (target * largest).astype(np.float32), np.random.default_rng(0)
    failed, chunk = np.zeros(n), max(1, CELLS // n)
    for begin in range(0, DRAWS, chunk):
        draws = min(chunk, DRAWS - begin)
        weights = rng.standard_exponential((draws, n_groups), dtype=np.float32)
        extra = rng.standard_exponential((draws, 1), dtype=np.float32)
        won = np.cumsum(weights[:, number] * gain, axis=1)
        failed += (won <= worst * extra).sum(axis=0)
    return (failed + 1) / (DRAWS + 1), np.arange(1, n + 1) / largest


def mean_lower_bound(values: ArrayLike, groups: Groups = None) -> float:
    """Return the one-sided 95% lower bound of the mean of values (n,) in [0, 1], by group (n,).

    It is the largest target that the test of `group_tails` refutes for all rows at once, for values
    in [0, 1]: 5% of Bayesian bootstraps have a mean below it, with one extra group as large as the
    largest and all 0 (Gaffke 2005). Without rows it is 0.0.
    """
    v = as_floats(values)
    (bound,) = mean_lower_bounds(v, np.ones((1, v.size), dtype=np.bool_), groups)
    return float(bound)


def mean_lower_bounds(values: ArrayLike, parts: Bools, groups: Groups = None) -> Floats:
    """Return the `mean_lower_bound` of each of several parts (m, n) of the same rows, (m,)."""
    v, parts = as_floats(values), np.asarray(parts, dtype=np.bool_)
    if v.ndim != 1:
        raise ValueError(f"expected values of shape (n,), got an array of shape {v.shape}")
    if not len(v) or not len(parts):
        return np.zeros(len(parts))
    if not ((v >= 0) & (v <= 1)).all():
        raise ValueError("values must lie in [0, 1]")
    number = group_codes(groups, len(v))
    n_groups = int(number.max()) + 1
    sizes = np.stack([np.bincount(number, part, n_groups) for part in parts], axis=1)
    sums = np.stack([np.bincount(number, part * v, n_groups) for part in parts], axis=1)
    order = np.lexsort((sums, sizes), axis=0)
    sizes, sums = np.take_along_axis(sizes, order, 0), np.take_along_axis(sums, order, 0)
    largest = np.maximum(sizes.max(axis=0), 1.0)  # a part may have no row
    rng, means, draws_left = np.random.default_rng(0), [], BOUND_DRAWS
    while draws_left:
        draws = min(draws_left, max(1, CELLS // n_groups))
        weights = rng.standard_exponential((draws, n_groups))
        extra = rng.standard_exponential((draws, 1))
        means.append(weights @ sums / (weights @ sizes + extra * largest))
        draws_left -= draws
    refuting = int((1 - LEVEL) * (BOUND_DRAWS + 1)) - 1  # draws that may fail
    return np.asarray(np.sort(np.concatenate(means), axis=0)[max(0, refuting)])


def mean_upper_bound(values: ArrayLike, groups: Groups = None) -> float:
    """Return the one-sided 95% upper bound: 1 less the `mean_lower_bound` of 1 - values."""
    return 1 - mean_lower_bound(1 - as_floats(values), groups)


def times_needed(
    labels: Floats, truth: Floats, number: Ints, target: float, chance: float, *, reach: int
) -> float | None:
    """Return how many times as many groups like these would refute the target, or None for never.

    The power is four in five, at the best k, which is `reach` at most, by a normal approximation of
    `group_tails`. K times as many groups win K sum(S), which must exceed sqrt(K sum(S^2) z^2 +
    L^2): z is the upper normal point of `chance` plus that of one in five, and L is the loss of the
    worst-case group if its weight is as rare as `chance`. Both sums are those expected of labels
    that are right with the probabilities `truth` (n,), the second times the design effect of the
    labels: of many sums of drawn labels, the best would be the luckiest. At least 1.
    """
    from scipy.special import ndtri

    gain = labels - target
    after_row = _within(gain, number)
    won = np.cumsum(truth - target)
    spread = np.cumsum(truth * (1 - truth) + (truth - target) ** 2)
    summed = (after_row**2 - (after_row - gain) ** 2)[:reach].sum()
    spread *= max(1.0, summed / (gain[:reach] ** 2).sum())
    worst = target * _largest(number) * np.log(1 / chance)
    good = (won > 0) & (np.arange(len(won)) < reach)
    if not good.any():
        return None
    b = spread[good] * (ndtri(1 - chance) + ndtri(0.8)) ** 2
    times = (b + np.sqrt(b**2 + 4 * (won[good] * worst[good]) ** 2)) / (2 * won[good] ** 2)
    return max(1.0, float(times.min()))


def _within(values: Floats, number: Ints) -> Floats:
    """Return (n,) running sums of values (n,) within each row's group, the row itself included."""
    order = np.argsort(number, kind="stable")
    total = np.cumsum(values[order])
    begins = np.flatnonzero(np.diff(number[order], prepend=-1))
    lengths = np.diff(begins, append=len(number))
    within = np.empty(len(number))
    within[order] = total - np.repeat(total[begins] - values[order][begins], lengths)
    return within


def _largest(number: Ints) -> Floats:
    """Return (n,) the size of the largest group among the rows down to each."""
    return np.maximum.accumulate(_within(np.ones(len(number)), number))


def _by_first_row(number: Ints) -> Ints:
    """Return the groups (n,) numbered in the order of their first rows."""
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


def group_sizes(n_groups: float) -> tuple[int, ...]:
    """Return the numbers of groups, up to `n_groups`, at which a sequence of tests may start.

    >>> group_sizes(100)
    (12, 24, 48, 96)
    """
    sizes = [FIRST_GROUPS]
    while 2 * sizes[-1] <= n_groups:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)

"""The test behind a certificate for new groups: groups are exchangeable, their rows are not.

Labels by falling confidence and the numbers of their groups in, tail probabilities out. Each group
counts once, whatever its size: no result depends on the single largest one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Bools, Floats, Groups, Ints, as_floats, group_codes
from calibration.metrics.intervals import design_effect

LEVEL = 0.95  # confidence of a bound: how likely the mean is on the right side of it
# random weightings per tail probability; at a tail of 2.5% its standard error is 0.35%
DRAWS = 2000
BOUND_DRAWS = 9_999  # random weightings per bound
CELLS = 2_000_000  # numbers held in memory at once
FIRST_GROUPS = 12  # groups at the first start of a test sequence; each next one has twice as many


def group_tails(labels: Floats, number: Ints, target: float) -> tuple[Floats, Floats]:
    """Test, for every k, that no more than `target` of a new group is right, in the mean.

    Returns (n,) p-values, and (n,) the number of groups among the first k rows. For a group that
    has m of its rows among the first k, h of them right, let S = h / m - target. The null
    hypothesis is E[S] <= 0 for a new group with such rows.

    The p-value is P(sum of S_g E_g <= target E_0): independent exponentials weigh the groups (n,)
    and one extra group, which is all wrong: the worst case is one in G + 1. So it is the share of
    Bayesian bootstraps that fail with the worst case added (Gaffke 2005, "Three test statistics for
    a nonparametric one-sided hypothesis on the mean of a nonnegative variable"; Learned-Miller and
    Thomas 2019, "A new confidence interval for the mean of a bounded random variable"). If every
    group is one row, it is the exact binomial tail. Validity in samples of any size, for any
    bounded S, is proved for two values and otherwise their conjecture, which `make promise` tests.

    labels (n,) of 0 and 1, the most confident first; number (n,): their groups, from 0. The `DRAWS`
    exponentials are always the same, in the order of the groups' first rows.
    """
    n = len(labels)
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[number]  # in the order of their first rows
    n_groups = int(number.max()) + 1
    gain = _changes(labels - target, number).astype(np.float32)
    worst, rng = np.float32(target), np.random.default_rng(0)
    failed, chunk = np.zeros(n), max(1, CELLS // n)
    for begin in range(0, DRAWS, chunk):
        draws = min(chunk, DRAWS - begin)
        weights = rng.standard_exponential((draws, n_groups), dtype=np.float32)
        extra = rng.standard_exponential((draws, 1), dtype=np.float32)
        won = np.cumsum(weights[:, number] * gain, axis=1)
        failed += (won <= worst * extra).sum(axis=0)
    return (failed + 1) / (DRAWS + 1), _groups_so_far(number)


def mean_lower_bound(values: ArrayLike, groups: Groups = None) -> float:
    """Return the one-sided 95% lower bound of the mean over groups (n,) of their mean values.

    Each group counts once, values (n,) lie in [0, 1]. It is the largest target that the test of
    `group_tails` refutes for all rows at once (Gaffke 2005). Without rows it is 0.0.
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
    present, means_in = (sizes > 0) * 1.0, sums / np.maximum(sizes, 1)
    order = np.lexsort((means_in, present), axis=0)
    present = np.take_along_axis(present, order, 0)
    means_in = np.asarray(np.take_along_axis(means_in, order, 0), dtype=np.float64)
    rng, means, draws_left = np.random.default_rng(0), [], BOUND_DRAWS
    while draws_left:
        draws = min(draws_left, max(1, CELLS // n_groups))
        weights = rng.standard_exponential((draws, n_groups))
        extra = rng.standard_exponential((draws, 1))
        means.append(weights @ means_in / (weights @ present + extra))
        draws_left -= draws
    refuting = int((1 - LEVEL) * (BOUND_DRAWS + 1)) - 1  # draws that may fail
    return np.asarray(np.sort(np.concatenate(means), axis=0)[max(0, refuting)])


def mean_upper_bound(values: ArrayLike, groups: Groups = None) -> float:
    """Return the one-sided 95% upper bound: 1 less the `mean_lower_bound` of 1 - values."""
    return 1 - mean_lower_bound(1 - as_floats(values), groups)


def expected_groups(
    labels: Floats, truth: Floats, number: Ints, reach: int
) -> tuple[Floats, Floats, Floats]:
    """Return, down to each row, the expected mean over groups, their number and worth in rows.

    Rows are right with the probabilities `truth` (n,). The groups count for as many independent
    rows as have the variance of their mean, with the noise of labels times the design effect of the
    errors of the first `reach` rows.
    """
    rows, noise = _within(np.ones(len(number)), number), truth * (1 - truth)
    gain, before = _within(truth, number), np.maximum(rows - 1, 1)
    n_groups, mean = _groups_so_far(number), np.cumsum(_changes(truth, number))
    mean /= n_groups
    effect = max(1.0, design_effect((labels - truth)[:reach], group_codes(number[:reach], reach)))
    squares = (gain / rows) ** 2 - ((gain - truth) / before) ** 2
    of_labels = _within(noise, number) / rows**2 - (_within(noise, number) - noise) / before**2
    variance = np.cumsum(squares + effect * of_labels) / n_groups - mean**2
    return mean, n_groups, n_groups * mean * (1 - mean) / np.maximum(variance, 1e-9)


def _changes(values: Floats, number: Ints) -> Floats:
    """By how much each row (n,) changes the mean of its group so far, which is 0 without rows."""
    sums, rows = _within(values, number), _within(np.ones(len(number)), number)
    return sums / rows - (sums - values) / np.maximum(rows - 1, 1)


def _within(values: Floats, number: Ints) -> Floats:
    """Running sums of values (n,) within each row's group, the row itself included."""
    order = np.argsort(number, kind="stable")
    total = np.cumsum(values[order])
    begins = np.flatnonzero(np.diff(number[order], prepend=-1))
    lengths = np.diff(begins, append=len(number))
    within = np.empty(len(number))
    within[order] = total - np.repeat(total[begins] - values[order][begins], lengths)
    return within


def _groups_so_far(number: Ints) -> Floats:
    return np.cumsum(_within(np.ones(len(number)), number) == 1).astype(np.float64)


def group_sizes(n_groups: float) -> tuple[int, ...]:
    """Return the numbers of groups, up to `n_groups`, at which a sequence of tests may start.

    >>> group_sizes(100)
    (12, 24, 48, 96)
    """
    sizes = [FIRST_GROUPS]
    while 2 * sizes[-1] <= n_groups:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)

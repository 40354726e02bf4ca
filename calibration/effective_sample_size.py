"""The effective number of dependent rows, and the design effect of groups that reduces it.

Numbers and groups in, one number out; numpy only. It knows nothing of what the groups are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Groups, as_floats, group_codes


def design_effect(residuals: ArrayLike, groups: Groups) -> float:
    """Return how many of the rows are as informative as one independent row: 1 to n.

    residuals (n,): the averaged values minus their mean or expectation. Rows of one group (n,) may
    be dependent; groups None: all rows are independent. The result is the variance of the sum by
    groups over that by rows (Kish 1965; Rao and Scott 1992), with G / (G - 1) for few groups. A
    ratio below 1 (negatively correlated rows in a group) becomes 1, since chance alone produces it
    as well.
    """
    values = as_floats(residuals)
    number = group_codes(groups, len(values))
    n_groups, rows = int(number.max(initial=-1)) + 1, float((values**2).sum())
    if n_groups == len(values) or rows <= 0:
        return 1.0 if n_groups == len(values) else kish(number)
    if n_groups < 2:
        return float(len(values))
    between = float((np.bincount(number, values) ** 2).sum()) * n_groups / (n_groups - 1)
    return float(min(max(1.0, between / rows), len(values)))


def kish(groups: ArrayLike) -> float:
    """Return the design effect of groups (n,) of identical rows: sum of sizes^2 / n."""
    labels = np.asarray(groups)
    sizes = np.bincount(group_codes(labels, len(labels)))
    return float((sizes**2).sum() / len(labels))


def effective_groups(groups: ArrayLike) -> float:
    """Return the effective number of groups (n,) of unequal sizes: n / `kish`.

    It is n^2 / sum of sizes^2, from 1 to the number of groups. A few large groups decide a mean, so
    its spread is known no better than from that many groups of equal size (Satterthwaite 1946, for
    groups whose sums vary with their sizes).
    """
    labels = np.asarray(groups)
    return len(labels) / kish(labels)


def effective_n(residuals: ArrayLike, groups: Groups) -> float:
    """Return the effective number of the rows: n / `design_effect`."""
    values = as_floats(residuals)
    return len(values) / design_effect(values, groups)


def effective_rows(X: ArrayLike, groups: Groups) -> float:
    """Return the effective number of the rows of X (n, d), at most n.

    It is that of the column whose rows depend most on each other within groups (n,). A column's
    design effect is the mean over indicators: at most, and below, each of its three quartiles.
    It is capped at `kish`, the case of identical rows in a group, and is that of `kish` if all rows
    are identical. n >= 1.
    """
    x = as_floats(X)
    number = group_codes(groups, len(x))
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


def grouped_standard_error(values: ArrayLike, groups: ArrayLike) -> float:
    """Return the standard error of the mean of values (n,), whose groups (n,) are independent.

    The cluster-robust formula: the root of the summed squares of the groups' sums of deviations,
    over n, times sqrt(G / (G - 1)). With one row per group it is the usual s / sqrt(n). One group
    gives infinity: the spread is unknown.
    """
    v = as_floats(values)
    number = group_codes(np.asarray(groups), len(v))
    sums = np.bincount(number, weights=v - v.mean())
    if len(sums) < 2:
        return float("inf")
    return float(np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1)) / len(v))

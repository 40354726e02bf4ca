"""The effective number of dependent rows, and the design effect of groups that reduces it.

Checked arrays in, one number out; numpy only.
"""

from __future__ import annotations

import numpy as np

from calibration.arrays import Codes, Floats


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

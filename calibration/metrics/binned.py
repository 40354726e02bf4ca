"""Bins of confidences, and the calibration error that they show; equal values share a bin.

Arrays in, numbers out. The import needs numpy only, `ece_debiased` SciPy too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Groups, Ints, check_y_p
from calibration.metrics.null_labels import sample_null_labels

DRAWS = 500
"""Draws of labels behind a consistency band."""


def bins(values: Floats) -> Ints:
    """Return (n,) bin numbers from 0, rising with the value; bins have about equally many rows.

    There is one bin per 40 rows, but at least 4 and at most 15; fewer where equal values, which are
    kept together, would fill several. The order of the rows does not matter.
    """
    count = int(np.clip(len(values) // 40, 4, 15))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)[1:-1], method="lower"))
    number = np.searchsorted(edges, values, side="left")
    return np.unique(number, return_inverse=True)[1].astype(np.int64)


def consistency_band(
    labels: Floats, values: Floats, *, groups: Groups = None
) -> tuple[Floats, Floats]:
    """Return (low, high), (bins,) each: where 95% of a bin's shares lie if p is exact.

    labels and values (n,) are as from `arrays.check_y_p`, the bins as from `bins`. Labels are drawn
    by `sample_null_labels`, as dependent within a group (n,) as the given ones.
    """
    number, rng = bins(values), np.random.default_rng(0)
    drawn = sample_null_labels(values, DRAWS, rng, groups=groups, y=labels)
    null = np.array([np.bincount(number, each) for each in drawn]) / np.bincount(number)
    low, high = np.quantile(null, [0.025, 0.975], axis=0)
    return low, high


def ece_debiased(y: ArrayLike, p: ArrayLike) -> float:
    """Return the equal-mass ECE in [0, 1], corrected for chance.

    The plug-in estimate, the mean |accuracy - confidence| over the bins of `bins`, is 0.06 for an
    exactly calibrated model on 200 rows: chance can only add to an absolute value. How much it adds
    depends on the gap, so the correction is made at that gap and not at 0. The result is the gap e
    for which bins that are all off by e would show the plug-in on average, each with the binomial
    error of its own rate (hits + 1) / (rows + 2). Debiasing at the fitted rates is the idea of
    Kumar, Liang and Ma (2019). The result is 0 if chance alone shows more. As it is never below 0,
    an exact model has a little more on average: 0.03 with 200 rows, 0.013 with 1,000.
    """
    labels, values = check_y_p(y, p)
    number = bins(values)
    rows = np.bincount(number)
    share = rows / len(values)
    rate = (np.bincount(number, labels) + 1) / (rows + 2)
    error = np.sqrt(rate * (1 - rate) / rows)
    plug_in = float(np.abs(np.bincount(number, labels - values)).sum() / len(values))

    low, high = 0.0, 1.0
    if share @ _mean_absolute_normal(0.0, error) >= plug_in:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        if share @ _mean_absolute_normal(middle, error) < plug_in:
            low = middle
        else:
            high = middle
    return high


def _mean_absolute_normal(gap: float, error: Floats) -> Floats:
    """Return the mean of |gap + a normal error| for errors (bins,)."""
    from scipy.special import ndtr

    scaled = gap / error
    density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(2 * error * density + gap * (2 * ndtr(scaled) - 1), dtype=np.float64)

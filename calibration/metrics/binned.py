"""Bins of confidences, and the calibration error that they show; equal values share a bin.

Arrays in, numbers out; numpy only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats, checked
from calibration.metrics.null_labels import Groups, sample_null_labels


def bins(values: Floats, wanted: int | None = None) -> NDArray[np.int64]:
    """Return (n,) bin numbers from 0, rising with the value: bins of about as many rows each.

    `wanted` are made, fewer where equal values, which are kept together, fill several; None: a bin
    for 40 rows, but 4 to 15. The order of the rows does not matter.
    """
    if wanted is None:
        wanted = int(np.clip(len(values) // 40, 4, 15))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, wanted + 1)[1:-1], method="lower"))
    found = np.searchsorted(edges, values, side="left")
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def consistency_band(
    labels: Floats,
    values: Floats,
    *,
    groups: Groups = None,
    draws: int = 500,
    random_state: int = 0,
) -> tuple[Floats, Floats]:
    """Return (low, high), (bins,) each: where 95 % of a bin's shares lie when p is exact.

    labels and values (n,) as `arrays.checked` returns them; bins as `bins`; labels are drawn as
    `sample_null_labels`, those of a group (n,) together as far as the given ones are.
    """
    number, rng = bins(values), np.random.default_rng(random_state)
    drawn = sample_null_labels(values, draws, rng, groups=groups, y=labels)
    null = np.array([np.bincount(number, each) for each in drawn]) / np.bincount(number)
    low, high = np.quantile(null, [0.025, 0.975], axis=0)
    return low, high


def ece_debiased(y: ArrayLike, p: ArrayLike, *, bins: int | None = None) -> float:
    """Return the equal-mass ECE that explains the one measured, in [0, 1]: chance is taken off.

    The plug-in, the mean |accuracy - confidence| over the bins of `bins`, is 0.06 for a true model
    of 200 rows: chance can only add to an absolute value. How much it adds depends on the gap it is
    added to, so it is taken off at the gap and not at 0: the result is the gap e at which bins that
    are all off by e would show the plug-in on average, each with the binomial error of its own rate
    (hits + 1) / (rows + 2). The idea of debiasing at the fitted rates is of Kumar, Liang and Ma
    (2019). It is 0 where chance alone shows more. As it is never below 0, a true model has a little
    more on average: 0.03 with 200 rows, 0.013 with 1,000.
    """
    labels, values = checked(y, p)
    number = _bins(values, bins)
    rows = np.bincount(number)
    share = rows / len(values)
    rate = (np.bincount(number, labels) + 1) / (rows + 2)
    error = np.sqrt(rate * (1 - rate) / rows)
    plug_in = float(np.abs(np.bincount(number, labels - values)).sum() / len(values))

    low, high = 0.0, 1.0
    if share @ _folded(0.0, error) >= plug_in:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        if share @ _folded(middle, error) < plug_in:
            low = middle
        else:
            high = middle
    return high


_bins = bins


def _folded(gap: float, error: Floats) -> Floats:
    """Return the mean of |gap + a normal error| for errors (bins,)."""
    from scipy.special import ndtr

    scaled = gap / error
    density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(2 * error * density + gap * (2 * ndtr(scaled) - 1), dtype=np.float64)

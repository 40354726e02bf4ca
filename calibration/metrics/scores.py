"""How reliable and how useful probabilities are: pure functions of labels y and probabilities p.

`y` is (n,) of 0 and 1, `p` is (n,) in [0, 1], n >= 1, which `calibration.metrics` checks. Each
function returns one float unless it says otherwise; a row with the `sample_weight` k counts as k
rows. numpy only, but for `corp`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Bools, Floats, Groups, Ints, as_weights, check_probabilities
from calibration.metrics.intervals import Interval, mean_interval


def tie_blocks(ordered: Floats, labels: Floats) -> tuple[Ints, Floats]:
    """Return where each run of equal values ends (exclusive), and the labels' sum within it."""
    ends = np.append(np.flatnonzero(np.diff(ordered)) + 1, len(ordered))
    return ends, np.add.reduceat(labels, np.append(0, ends[:-1]))


def expected_errors(y: Floats, p: Floats) -> Floats:
    """Return (n,): expected errors among the 1, ..., n most confident rows, averaged over ties."""
    order = np.argsort(-p, kind="stable")
    ends, wrong = tie_blocks(-p[order], 1 - y[order])
    ends, errors = np.append(0, ends), np.append(0.0, np.cumsum(wrong))
    return np.asarray(np.interp(np.arange(1, len(order) + 1), ends, errors), dtype=np.float64)


def aurc(y: Floats, p: Floats) -> float:
    """Return the area under the risk-coverage curve: mean error rate of the k most confident.

    In [0, 1], lower is better (Geifman and El-Yaniv 2017); averaged over ties.
    """
    errors = expected_errors(y, p)
    return float(np.mean(errors / np.arange(1, len(errors) + 1)))


def augrc(y: Floats, p: Floats) -> float:
    """Return the area under the generalised risk-coverage curve (Traub et al. 2024).

    The mean over k of the share of *all* rows that is both accepted and wrong, in [0, (n + 1) / (2
    n)] of n rows; lower is better.
    """
    errors = expected_errors(y, p)
    return float(np.mean(errors / len(errors)))


def naurc(y: Floats, p: Floats) -> float:
    """Return `aurc` rescaled so that chance is 0 and the oracle 1; NaN if y has one class."""
    chance, oracle = 1 - y.mean(), aurc(y, y)
    if not 0 < chance < 1:
        return float("nan")
    return float((chance - aurc(y, p)) / (chance - oracle))


def nauc(y: Floats, p: Floats) -> float:
    """Return MTEB's nAUC of abstention: 1 for the oracle, 0 for chance; NaN if y has one class.

    The area, by the trapezoidal rule, under the accuracy with the least confident 0, 10, ..., 90%
    left out, rescaled from the flat curve's area to the oracle's (Gisserot-Boukhlef et al. 2024);
    averaged over ties.
    """
    errors, n = expected_errors(y, p), len(y)
    rates = np.linspace(0, 1, 11)[:-1]  # to the last digit, which decides how MTEB rounds a half
    accepted = np.array([n - min(round(rate * n), n - 1) for rate in rates.tolist()])
    hits = n - errors[-1]
    if not 0 < hits < n:
        return float("nan")

    def area(accuracy: Floats) -> float:
        return float((accuracy[1:] + accuracy[:-1]).sum() / 20)

    flat, oracle = 0.9 * hits / n, area(np.minimum(1.0, hits / accepted))
    return float((area(1 - errors[accepted - 1] / accepted) - flat) / (oracle - flat))


# probabilities are kept this far from 0 and 1 in a log loss, so that one miss stays finite
CLIP = 1e-6


def _mean(values: Floats | Bools, sample_weight: ArrayLike | None) -> float:
    if sample_weight is None:
        return float(values.mean())
    w = as_weights(sample_weight, len(values))
    return float(w @ values / w.sum())


def brier(y: Floats, p: Floats, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean of (p - y)^2, in [0, 1] (Brier 1950)."""
    return _mean((p - y) ** 2, sample_weight)


def corp(y: Floats, p: Floats) -> tuple[float, float, float]:
    """Return (miscalibration, discrimination, uncertainty) of the Brier score, each >= 0.

    CORP (Dimitriadis, Gneiting and Jordan 2021): with q the isotonic fit of y on p, and the base
    rate as the uninformed forecast, they are brier(p) - brier(q), brier(base) - brier(q) and
    brier(base). The score is the first minus the second plus the third. It needs no bins.
    """
    from sklearn.isotonic import isotonic_regression

    order = np.argsort(p)
    ends, hits = tie_blocks(p[order], y[order])
    rows = np.diff(ends, prepend=0)
    fitted = isotonic_regression(hits / rows, sample_weight=rows.astype(np.float64))
    best = float((rows * fitted * (1 - fitted)).sum() / len(y))  # fitted: a pool's hit rate
    base = float(y.mean() * (1 - y.mean()))
    return max(0.0, brier(y, p) - best), max(0.0, base - best), base


def log_loss(y: Floats, p: Floats, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the mean negative log likelihood in nats, p clipped to [1e-6, 1 - 1e-6]."""
    return _mean(row_losses(y, p), sample_weight)


def auroc(y: Floats, p: Floats) -> float:
    """Return P(p of a hit > p of a miss), ties half; NaN if y has one class (Mann-Whitney)."""
    hits = y.sum()
    misses = len(y) - hits
    if not hits or not misses:
        return float("nan")
    order = np.argsort(p)
    ends, per_hit = tie_blocks(p[order], y[order])
    sizes = np.diff(ends, prepend=0)
    middle = ends - (sizes - 1) / 2  # the mean rank, from 1, of each block of ties
    return float((middle @ per_hit - hits * (hits + 1) / 2) / (hits * misses))


def coverage(p: ArrayLike, threshold: float, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the share of rows with p >= threshold."""
    return _mean(check_probabilities(p) >= threshold, sample_weight)


def selective_accuracy(
    y: Floats, p: Floats, threshold: float, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the mean of y over the rows with p >= threshold; NaN if there is none."""
    accepted = as_weights(sample_weight, len(y)) * (p >= threshold)
    return float(accepted @ y / accepted.sum()) if accepted.any() else float("nan")


def band(y: Floats, p: Floats, middle: float) -> tuple[int, float, float]:
    """Return (rows, mean of p, mean of y) of the rows within 0.05 of `middle`; NaN for none."""
    near = np.abs(p - middle) <= 0.05 + 1e-9  # 0.75 - 0.7 is above 0.05, by rounding
    if not near.any():
        return 0, float("nan"), float("nan")
    return int(near.sum()), float(p[near].mean()), float(y[near].mean())


def brier_interval(y: Floats, p: Floats, groups: Groups = None) -> Interval:
    """Return (low, high) of the Brier score, in [0, 1]: `mean_interval` of the squared errors."""
    return mean_interval((p - y) ** 2, groups)


def row_losses(y: Floats | Ints, p: Floats) -> Floats:
    """Return (n,) log losses in nats, with p clipped to [1e-6, 1 - 1e-6]."""
    q = np.clip(p, CLIP, 1 - CLIP)
    return np.asarray(-np.where(y == 1, np.log(q), np.log1p(-q)), dtype=np.float64)

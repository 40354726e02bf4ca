"""One score to a probability: Platt, temperature, beta and isotonic.

Scores (n,) and labels y (n,) in, a map out; a row with the `sample_weight` k counts as k rows. The
scores of temperature and beta are log odds. For labels of one class every function gives the
smoothed base rate: for all scores, or, by isotonic, for those that it has seen. For a constant
score it gives about the share of hits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Ints, as_labels, as_scores, as_weights, logit, sigmoid
from calibration.maps import BetaMap, IsotonicMap, LogisticMap, ScoreMap


def base_rate(y: ArrayLike, weights: ArrayLike = 1.0) -> float:
    """Return (hits + 1) / (n + 2), Laplace's rule: never 0 and never 1."""
    w = np.broadcast_to(weights, np.shape(y))
    return float(((w * y).sum() + 1) / (w.sum() + 2))


def smoothed_targets(labels: Ints, weights: ArrayLike = 1.0) -> Floats:
    """Return Platt's targets (1999): a hit counts (N1 + 1) / (N1 + 2), a miss 1 / (N0 + 2).

    They keep every slope finite where the classes are separated.
    """
    w = np.broadcast_to(weights, labels.shape)
    hits, n = float((w * labels).sum()), float(w.sum())
    return np.where(labels == 1, (hits + 1) / (hits + 2), 1 / (n - hits + 2))


def weighted(s: Floats, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Any, Ints, Floats]:
    """The rows of scores or features, their labels and their weights, without those of weight 0."""
    labels, w = as_labels(y, len(s)), as_weights(sample_weight, len(s))
    return s[w > 0], labels[w > 0], w[w > 0]


def maximum_likelihood(
    design: Floats,
    target: Floats,
    start: Floats,
    *,
    precision: ArrayLike = 0.0,
    offset: ArrayLike = 0.0,
    row_weight: float = 1.0,
    sample_weight: ArrayLike = 1.0,
) -> Floats:
    """Return the weights w (d,) of sigmoid(design @ w + offset) that fit targets (n,) best.

    They maximise `row_weight` times the log likelihood (for dependent rows below 1), whose rows
    count `sample_weight` (n,) times, minus `precision` (d,) times (w - start)^2 / 2, a Gaussian
    prior. Newton's method with backtracking (Lin, Lin and Weng 2007, "A note on Platt's
    probabilistic outputs for support vector machines", appendix 3).
    """
    prior = np.broadcast_to(np.asarray(precision, dtype=np.float64), start.shape)
    weights, base = start.astype(np.float64), np.asarray(offset, dtype=np.float64)
    counts = np.asarray(sample_weight, dtype=np.float64)

    def loss(w: Floats, z: Floats) -> float:
        fit = float((counts * (np.logaddexp(0.0, z) - target * z)).sum())
        return row_weight * fit + float(prior @ (w - start) ** 2) / 2

    z = design @ weights + base
    lowest = loss(weights, z)
    for _ in range(100):
        p = sigmoid(z)
        gradient = row_weight * (design.T @ (counts * (p - target))) + prior * (weights - start)
        if np.abs(gradient).max() < 1e-9 * len(target):
            break
        curvature = row_weight * ((design * (counts * p * (1 - p))[:, None]).T @ design)
        curvature += np.diag(prior + 1e-12)
        step, size = np.linalg.solve(curvature, gradient), 1.0
        slope = 1e-4 * float(gradient @ step)
        while True:
            moved = weights - size * step
            z = design @ moved + base
            reached = loss(moved, z)
            if reached <= lowest - size * slope or size < 1e-10:
                break
            size /= 2
        weights, lowest = moved, reached
    return weights


def log_evidence(
    design: Floats,
    target: Floats,
    weights: Floats,
    start: Floats,
    *,
    precision: Floats,
    row_weight: float,
) -> float:
    """Return the log marginal likelihood of labels (n,), by Laplace, up to a constant.

    weights (d,) are `maximum_likelihood`'s under a Gaussian prior of that precision (d,) around
    `start` (MacKay 1992), with rows of the same `row_weight`.
    """
    z = design @ weights
    p = sigmoid(z)
    likelihood = row_weight * float((target * z - np.logaddexp(0.0, z)).sum())
    prior = float(np.log(precision).sum() - precision @ (weights - start) ** 2) / 2
    curvature = row_weight * ((design * (p * (1 - p))[:, None]).T @ design) + np.diag(precision)
    return likelihood + prior - float(np.linalg.slogdet(curvature)[1]) / 2


def _constant(target: Floats, w: Floats) -> LogisticMap:
    return LogisticMap((0.0,), float(logit(_moments(target, w)[0])), (0.0,), (1.0,))


def _moments(s: Floats, w: Floats) -> tuple[float, float]:
    """The mean and the standard deviation of rows with these weights."""
    if (w == 1).all():
        return float(s.mean()), float(s.std())
    mean = float(np.average(s, weights=w))
    return mean, float(np.sqrt(np.average((s - mean) ** 2, weights=w)))


def _is_flat(s: Floats) -> bool:
    return not s.std() > 1e-12 * max(1.0, abs(float(s.mean())))


def fit_platt(
    scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> LogisticMap:
    """Return Platt's sigmoid of one score (n,): unpenalised, on `smoothed_targets`.

    If its slope would not be positive, the score says nothing and the map is a constant.
    """
    s, labels, w = weighted(as_scores(scores), y, sample_weight)
    target = smoothed_targets(labels, w)
    if _is_flat(s):
        return _constant(target, w)
    mean, scale = _moments(s, w)
    design = np.column_stack([(s - mean) / scale, np.ones(len(s))])
    start = np.array([0.0, float(logit(_moments(target, w)[0]))])
    slope, intercept = maximum_likelihood(design, target, start, sample_weight=w)
    if slope <= 0:
        return _constant(target, w)
    return LogisticMap((float(slope),), float(intercept), (mean,), (scale,))


def fit_temperature(
    scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> LogisticMap:
    """Return sigmoid(score / T), one number T for log odds (n,) (Guo et al. 2017).

    The targets are `smoothed_targets`; if 1 / T would not be positive, the map is a constant.
    """
    s, labels, w = weighted(as_scores(scores), y, sample_weight)
    target = smoothed_targets(labels, w)
    if _is_flat(s) or np.ptp(target) == 0:
        return _constant(target, w)
    slope = float(maximum_likelihood(s[:, None], target, np.array([0.0]), sample_weight=w)[0])
    return LogisticMap((slope,), 0.0, (0.0,), (1.0,)) if slope > 0 else _constant(target, w)


def fit_beta(scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> BetaMap:
    """Return the beta map of log odds (n,) (Kull, Silva Filho and Flach 2017), on smoothed targets.

    A weight that comes out negative is dropped and the rest fitted again, as its authors do.
    """
    s, labels, w = weighted(as_scores(scores), y, sample_weight)
    target = smoothed_targets(labels, w)
    weights = np.array([0.0, 0.0, float(logit(_moments(target, w)[0]))])
    if not _is_flat(s):
        columns = np.column_stack([-np.logaddexp(0, -s), np.logaddexp(0, s), np.ones(len(s))])
        active = np.array([True, True, True])
        while True:
            start = weights * active * [0, 0, 1]
            of_active = columns[:, active]
            fitted = maximum_likelihood(of_active, target, start[active], sample_weight=w)
            if not (fitted[:-1] < 0).any():
                break
            active[np.flatnonzero(active)[int(fitted[:-1].argmin())]] = False
        weights = np.zeros(3)
        weights[active] = fitted
    a, b, c = weights.tolist()
    return BetaMap(a, b, c)


def fit_isotonic(
    scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> IsotonicMap:
    """Return the isotonic fit of y on one score (n,), as knots, with ends that are never 0 or 1.

    Pool adjacent violators, by scikit-learn. A top block of m hits and no miss gets (m + 1) / (m +
    2), or the value of the block below if that is higher; the bottom block likewise. The slight
    rise within blocks is centred and scaled by the quartiles.
    """
    from sklearn.isotonic import IsotonicRegression

    s, labels, w = weighted(as_scores(scores), y, sample_weight)
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(s, labels, w)
    fitted = np.asarray(model.predict(s), dtype=np.float64)
    inner = fitted[(fitted > 0) & (fitted < 1)]
    low, high = 0.0, 1.0
    if (fitted == 0).any():
        low = min(1 / (w[fitted == 0].sum() + 2), inner.min(initial=1.0))
    if (fitted == 1).any():
        m = w[fitted == 1].sum()
        high = max((m + 1) / (m + 2), inner.max(initial=0.0))
    knots = np.clip(model.y_thresholds_, low, max(low, high))
    order = np.argsort(s)
    places = np.searchsorted(np.cumsum(w[order]), np.array([0.25, 0.5, 0.75]) * w.sum())
    low_quarter, middle, high_quarter = s[order][places].tolist()
    scale = (high_quarter - low_quarter) / 1.349 or _moments(s, w)[1] or 1.0
    return IsotonicMap(tuple(model.X_thresholds_), tuple(knots), middle, scale)


# How a score becomes a probability, by name, simple to complex. Add a fit of your own here.
SCORE_FITS: dict[str, Callable[[ArrayLike, ArrayLike], ScoreMap]] = {
    "temperature": fit_temperature,
    "logistic": fit_platt,
    "beta": fit_beta,
    "isotonic": fit_isotonic,
}

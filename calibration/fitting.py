"""The mathematics of calibration: plain functions from scores, or features, and labels to a map.

A score or features go in with labels of 0 and 1, a value of `calibration.maps` comes out. It knows
nothing of where features come from, and nothing of files. `calibrators` wraps it for scikit-learn.

When there is nothing to learn (labels of one class only, a score that is constant, fewer than two
groups to cross-fit), every function gives a constant: the base rate as that function smooths it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from calibration.maps import (
    Floats,
    IsotonicMap,
    LogisticMap,
    TwoStageMap,
    as_features,
    as_scores,
    logit,
    sigmoid,
)
from calibration.selection import codes, grouped_folds, one_standard_error, row_losses

PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The grid of C that `TwoStageCalibrator` chooses from, strongest penalty first."""

Groups = Sequence[Hashable] | NDArray[Any] | None


def as_labels(y: ArrayLike, n: int) -> NDArray[np.int64]:
    """Return y as (n,) integers 0 and 1.

    Raises:
        ValueError: not one label a row, no row at all, or a label that is neither 0 nor 1.
    """
    labels = np.asarray(y)
    if labels.shape != (n,) or n == 0:
        raise ValueError(f"expected one label a row for {n} rows, got shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        wrong = labels[~np.isin(labels, (0, 1))][0]
        raise ValueError(f"labels must be 0 or 1, got {wrong!r}")
    return labels.astype(np.int64)


def base_rate(y: ArrayLike) -> float:
    """Return (hits + 1) / (n + 2), Laplace's rule: never 0 and never 1."""
    labels = np.asarray(y)
    return float((labels.sum() + 1) / (len(labels) + 2))


def fit_logistic(X: ArrayLike, y: ArrayLike, *, C: float = 1.0) -> LogisticMap:
    """Return the ridge-penalised logistic regression of y (n,) on X (n, d), features standardised.

    The map clips each feature to the range that X shows.

    scikit-learn's lbfgs, unweighted, with its penalty |coef|^2 / (2 C). A constant column gets
    coefficient 0. Labels of one class give `base_rate` everywhere.

    Raises:
        ValueError: shapes, numbers that are not finite, labels other than 0 and 1, C <= 0.
    """
    x = np.asarray(X, dtype=np.float64)
    x = as_features(x, x.shape[-1] if x.ndim == 2 else 1)
    labels = as_labels(y, len(x))
    if not C > 0:
        raise ValueError(f"C must be positive, got {C}")
    scaler = StandardScaler().fit(x)
    mean, scale = tuple(scaler.mean_), tuple(scaler.scale_)
    if labels.min() == labels.max():
        return LogisticMap((0.0,) * x.shape[1], float(logit(base_rate(labels))), mean, scale)
    model = LogisticRegression(C=C, tol=1e-6, max_iter=1000)
    model.fit(scaler.transform(x), labels)
    coef = np.where(np.ptp(x, axis=0) > 0, model.coef_[0], 0.0)
    low, high = tuple(x.min(axis=0)), tuple(x.max(axis=0))
    return LogisticMap(tuple(coef), float(model.intercept_[0]), mean, scale, low, high)


def fit_platt(scores: ArrayLike, y: ArrayLike) -> LogisticMap:
    """Return Platt's sigmoid of one score (n,): unpenalised, on his prior-smoothed targets.

    A hit counts as (N1 + 1) / (N1 + 2) and a miss as 1 / (N0 + 2) (Platt 1999), which keeps the
    slope finite where the classes are separated. Newton's method with backtracking (Lin, Lin and
    Weng 2007, "A note on Platt's probabilistic outputs for support vector machines", appendix 3).

    Raises:
        ValueError: shapes, numbers that are not finite, labels other than 0 and 1.
    """
    s = as_scores(scores)
    labels = as_labels(y, len(s))
    hits = int(labels.sum())
    target = np.where(labels == 1, (hits + 1) / (hits + 2), 1 / (len(labels) - hits + 2))
    mean, scale = float(s.mean()), float(s.std())
    flat = not scale > 1e-12 * max(1.0, abs(mean))
    if flat:
        return LogisticMap((0.0,), float(logit(target.mean())), (mean,), (1.0,))
    design = np.column_stack([(s - mean) / scale, np.ones(len(s))])
    weights = np.array([0.0, float(logit(target.mean()))])

    def loss(w: Floats) -> float:
        z = design @ w
        return float((np.logaddexp(0.0, z) - target * z).sum())

    for _ in range(100):
        p = sigmoid(design @ weights)
        gradient = design.T @ (p - target)
        if np.abs(gradient).max() < 1e-9 * len(s):
            break
        hessian = (design * (p * (1 - p))[:, None]).T @ design + 1e-12 * np.eye(2)
        step, size, before = np.linalg.solve(hessian, gradient), 1.0, loss(weights)
        slope = 1e-4 * float(gradient @ step)
        while size > 1e-10 and loss(weights - size * step) > before - size * slope:
            size /= 2
        weights = weights - size * step
    return LogisticMap((float(weights[0]),), float(weights[1]), (mean,), (scale,))


def fit_isotonic(scores: ArrayLike, y: ArrayLike) -> IsotonicMap:
    """Return the rising step fit of y on one score (n,), as knots, with ends that are never 0 or 1.

    Pool adjacent violators, by scikit-learn. A top block of m hits and no miss would say 1; it
    says (m + 1) / (m + 2) instead, or the value of the block below where that is more; the bottom
    block likewise. So a single lucky case at the end does not claim certainty.

    Raises:
        ValueError: shapes, numbers that are not finite, labels other than 0 and 1.
    """
    s = as_scores(scores)
    labels = as_labels(y, len(s))
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(s, labels)
    fitted = np.asarray(model.predict(s), dtype=np.float64)
    inner = fitted[(fitted > 0) & (fitted < 1)]
    low, high = 0.0, 1.0
    if (fitted == 0).any():
        low = min(1 / ((fitted == 0).sum() + 2), inner.min(initial=1.0))
    if (fitted == 1).any():
        m = (fitted == 1).sum()
        high = max((m + 1) / (m + 2), inner.max(initial=0.0))
    knots = np.clip(model.y_thresholds_, low, max(low, high))
    return IsotonicMap(tuple(model.X_thresholds_), tuple(knots))


def _out_of_fold_logits(
    x: Floats, labels: NDArray[np.int64], fold: NDArray[np.int64], penalties: tuple[float, ...]
) -> Floats:
    """Return (penalties, n) logits of rows x (n, d), each from a fit without the row's fold."""
    logits = np.empty((len(penalties), len(x)))
    with threadpool_limits(limits=1):  # the matrices are small: threads only wait for each other
        for k in range(int(fold.max()) + 1):
            held = fold == k
            for i, penalty in enumerate(penalties):
                fitted = fit_logistic(x[~held], labels[~held], C=penalty)
                logits[i, held] = fitted.logit(x[held])
    return logits


def fit_two_stage(
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    then: str = "logistic",
    folds: int = 5,
    C: float | None = None,
    random_state: int = 0,
) -> tuple[TwoStageMap, float, Floats]:
    """Return the two-stage map, the C of its first stage, and its out-of-fold logits (n,).

    C, where None, is the strongest penalty of `PENALTIES` within one standard error of the lowest
    grouped cross-validated log loss. The first stage is refitted on all rows; the second, Platt or
    isotonic, is fitted on the first one's grouped out-of-fold logits. Where Platt's slope is not
    positive the features carry no signal, and the result is the smoothed base rate. With fewer
    than two groups, or labels of one class, the first stage is a constant.

    Raises:
        ValueError: as `fit_logistic`; an unknown `then`; folds < 2.
    """
    if then not in ("logistic", "isotonic"):
        raise ValueError(f"then must be 'logistic' or 'isotonic', got {then!r}")
    if folds < 2:
        raise ValueError(f"expected at least two folds, got {folds}")
    x = np.asarray(X, dtype=np.float64)
    x = as_features(x, x.shape[-1] if x.ndim == 2 else 1)
    labels = as_labels(y, len(x))
    number = codes(groups, len(labels))
    fold = grouped_folds(number, folds, random_state=random_state)
    penalties = PENALTIES if C is None else (C,)
    if fold.max() == 0 or labels.min() == labels.max():
        first = fit_logistic(x, np.zeros(len(x)), C=penalties[0])
        first = LogisticMap(first.coef, float(logit(base_rate(labels))), first.mean, first.scale)
        chosen, out = penalties[0], np.full(len(x), first.intercept)
    else:
        logits = _out_of_fold_logits(x, labels, fold, penalties)
        losses = np.array([row_losses(labels, sigmoid(row)) for row in logits])
        best = one_standard_error(losses, number)
        chosen, out = penalties[best], logits[best]
        first = fit_logistic(x, labels, C=chosen)
    second: LogisticMap | IsotonicMap
    if then == "isotonic":
        second = fit_isotonic(out, labels)
    else:
        second = fit_platt(out, labels)
        if second.coef[0] <= 0:
            second = fit_platt(np.zeros(len(out)), labels)
    return TwoStageMap(first, second), float(chosen), out

"""Calibrators as scikit-learn estimators: scores or features and labels in, a map out.

The mathematics is in the `fit_*` functions; the classes around them speak scikit-learn. What they
learn is in `map_`, a value of `calibration.maps`, and production needs nothing of this file. It
knows nothing of where features come from and nothing of files.

When there is nothing to learn (labels of one class only, a score that is constant, fewer than two
groups to cross-fit), every calibrator gives the same constant: its smoothed base rate.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (  # type: ignore[import-untyped,unused-ignore]
    BaseEstimator,
    ClassifierMixin,
)
from sklearn.isotonic import (  # type: ignore[import-untyped,unused-ignore]
    IsotonicRegression,
)
from sklearn.linear_model import (  # type: ignore[import-untyped,unused-ignore]
    LogisticRegression,
)
from sklearn.preprocessing import (  # type: ignore[import-untyped,unused-ignore]
    StandardScaler,
)
from sklearn.utils.validation import (  # type: ignore[import-untyped,unused-ignore]
    check_is_fitted,
)

from calibration.maps import (
    CalibrationMap,
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
    return LogisticMap(tuple(coef), float(model.intercept_[0]), mean, scale)


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
        while size > 1e-10 and loss(weights - size * step) > before - 1e-4 * size * (gradient @ step):
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
        logits = np.empty((len(penalties), len(x)))
        for k in range(int(fold.max()) + 1):
            held = fold == k
            for i, penalty in enumerate(penalties):
                fitted = fit_logistic(x[~held], labels[~held], C=penalty)
                logits[i, held] = fitted.logit(x[held])
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


class _Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """What the calibrators share: everything after `fit` is read off `map_`."""

    map_: CalibrationMap

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return (n, 2): the probabilities of 0 and of 1.

        Raises:
            sklearn.exceptions.NotFittedError: before `fit`.
            ValueError: X of another shape than fitted, or not finite.
        """
        check_is_fitted(self, "map_")
        p = self.map_.predict(X)
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return (n,) labels: 1 where its probability is at least a half."""
        return (self.predict_proba(X)[:, 1] >= 0.5).astype(np.int64)

    def _learned(self, result: CalibrationMap, width: int) -> Any:
        self.map_ = result
        self.classes_ = np.array([0, 1])
        self.n_features_in_ = width
        return self


class LogisticCalibrator(_Calibrator):
    """Logistic regression of d features; see `fit_logistic`."""

    def __init__(self, *, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit on X (n, d) and y (n,) of 0 and 1; return self. Raises as `fit_logistic`."""
        result = fit_logistic(X, y, C=self.C)
        return self._learned(result, len(result.coef))


class PlattCalibrator(_Calibrator):
    """Platt's sigmoid of one score; see `fit_platt`."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit on scores (n,) or (n, 1) and y (n,) of 0 and 1; return self. Raises as `fit_platt`."""
        return self._learned(fit_platt(X, y), 1)


class IsotonicCalibrator(_Calibrator):
    """Rising fit of one score; see `fit_isotonic`."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit on scores (n,) or (n, 1) and y (n,) of 0 and 1; return self. Raises as `fit_isotonic`."""
        return self._learned(fit_isotonic(X, y), 1)


class TwoStageCalibrator(_Calibrator):
    """Several features to one out-of-fold logit, then Platt or isotonic; see `fit_two_stage`.

    After `fit`: `map_`, `C_` (the penalty taken) and `out_of_fold_` ((n,) logits of the first
    stage, each from a fit that saw none of the row's group).
    """

    def __init__(
        self,
        *,
        then: str = "logistic",
        folds: int = 5,
        C: float | None = None,
        random_state: int = 0,
    ) -> None:
        self.then = then
        self.folds = folds
        self.C = C
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: Groups = None) -> Any:
        """Fit on X (n, d), y (n,) of 0 and 1, groups (n,) or None; return self.

        Raises as `fit_two_stage`.
        """
        result, self.C_, self.out_of_fold_ = fit_two_stage(
            X,
            y,
            groups,
            then=self.then,
            folds=self.folds,
            C=self.C,
            random_state=self.random_state,
        )
        return self._learned(result, len(result.first.coef))

"""Calibrators as scikit-learn estimators: scores or features and labels in, probabilities out.

Thin classes around `calibration.fitting`. What they learn is in `map_`, a value of
`calibration.maps`, and production needs nothing of this file. It knows nothing of where features
come from, and nothing of files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from calibration.fitting import Groups, fit_isotonic, fit_logistic, fit_platt, fit_two_stage
from calibration.maps import CalibrationMap, Floats


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
        """Fit on scores (n,) or (n, 1) and y (n,) of 0, 1; return self. Raises as `fit_platt`."""
        return self._learned(fit_platt(X, y), 1)


class IsotonicCalibrator(_Calibrator):
    """Rising fit of one score; see `fit_isotonic`."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Fit on scores (n,) or (n, 1), y (n,) of 0, 1; return self. Raises as `fit_isotonic`."""
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

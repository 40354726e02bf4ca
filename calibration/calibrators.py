"""Calibrators as scikit-learn estimators: scores or features and labels in, probabilities out.

Thin classes around `calibration.fitting`. What they learn is in `map_`, a value of
`calibration.maps`; production does not need this file.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from calibration import score_fitting
from calibration.arrays import Floats, Groups, Ints, as_floats, as_scores, refuse_masked
from calibration.fitting import fit_logistic, fit_two_stage
from calibration.maps import CalibrationMap


class _Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """What the calibrators share: after `fit`, everything is computed from `map_`.

    Labels have two classes; the greater one is the event. If they are 0 and 1, one may be missing.
    """

    map_: CalibrationMap
    classes_: NDArray[Any]

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return (n, 2): the probabilities of `classes_[0]` and of `classes_[1]`.

        Raises:
            sklearn.exceptions.NotFittedError: before `fit`.
            ValueError: X has another shape than in `fit`, or is not finite.
        """
        check_is_fitted(self, "map_")
        p = self.map_.predict(self._inputs(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return (n,) labels: `classes_[1]` where its probability is at least a half."""
        likely = self.predict_proba(X)[:, 1] >= 0.5
        return np.asarray(self.classes_[likely.astype(np.int64)])

    def _inputs(self, X: ArrayLike) -> Any:
        x = validate_data(self, X, reset=False, dtype=np.float64)
        as_floats(X)  # scikit-learn takes text and dates as numbers
        return x

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, Ints]:
        """Return X (n, d) as floats, and y (n,) as 0 and 1; set `classes_`."""
        x, labels = validate_data(self, X, y, dtype=np.float64)
        as_floats(X)  # scikit-learn takes text and dates as numbers, and unmasks what is masked
        refuse_masked(y)
        labels = np.asarray(labels)
        check_classification_targets(labels)
        classes = np.unique(labels)
        if len(classes) == 1 and classes[0] in (0, 1):  # as where nothing is right yet
            classes = np.array([0, 1])
        self.classes_ = classes
        if len(classes) != 2:
            n, some = len(classes), ", ".join(map(str, classes[:5]))
            raise ValueError(f"Only binary classification is supported, got {n} classes: {some}")
        return x, np.asarray(labels == self.classes_[1], dtype=np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class _ScoreCalibrator(_Calibrator):
    """A calibrator of one score per row, (n,) or (n, 1), with a fit of `score_fitting`."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit on scores (n,) or (n, 1), labels y (n,), weights (n,) or None; return self."""
        x, labels = self._checked(_one_column(X), y)
        self.map_ = type(self)._fit(self._scores(x), labels, sample_weight)
        return self

    @staticmethod
    @abstractmethod
    def _fit(scores: Floats, y: Ints, sample_weight: ArrayLike | None) -> CalibrationMap: ...

    _scores = staticmethod(as_scores)

    def _inputs(self, X: ArrayLike) -> Any:
        return self._scores(super()._inputs(_one_column(X)))


def _one_column(X: Any) -> Any:
    x = X if hasattr(X, "ndim") else np.asarray(X)
    return np.asanyarray(x)[:, None] if x.ndim == 1 else x


class PlattCalibrator(_ScoreCalibrator):
    """Platt's sigmoid of one score; see `fit_platt`."""

    _fit = staticmethod(score_fitting.fit_platt)


class TemperatureCalibrator(_ScoreCalibrator):
    """Log odds divided by one number; see `fit_temperature`."""

    _fit = staticmethod(score_fitting.fit_temperature)


class BetaCalibrator(_ScoreCalibrator):
    """The beta map of log odds; see `fit_beta`."""

    _fit = staticmethod(score_fitting.fit_beta)


class IsotonicCalibrator(_ScoreCalibrator):
    """Isotonic fit of one score; see `fit_isotonic`."""

    _fit = staticmethod(score_fitting.fit_isotonic)


class LogisticCalibrator(_Calibrator):
    """Logistic regression of d features; see `fit_logistic`."""

    def __init__(self, *, C: float = 1.0) -> None:
        self.C = C

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit on X (n, d), labels y (n,) of two classes, weights (n,) or None; return self.

        Raises as `fit_logistic`.
        """
        x, labels = self._checked(X, y)
        self.map_ = fit_logistic(x, labels, C=self.C, sample_weight=sample_weight)
        return self


class TwoStageCalibrator(_Calibrator):
    """Several features to one out-of-fold logit, then one of `SCORE_FITS`; see `fit_two_stage`.

    After `fit`: `map_`, `C_` (the penalty taken) and `out_of_fold_` ((n,) logits of the first
    stage, each from a fit that saw none of the row's group).
    """

    def __init__(
        self,
        *,
        second_stage: str = "logistic",
        folds: int = 5,
        C: float | None = None,
        random_state: int = 0,
    ) -> None:
        self.second_stage = second_stage
        self.folds = folds
        self.C = C
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: Groups = None) -> Any:
        """Fit on X (n, d), labels y (n,) of two classes, groups (n,) or None; return self.

        Raises as `fit_two_stage`.
        """
        x, labels = self._checked(X, y)
        fitted = fit_two_stage(x, labels, groups, **self.get_params())
        self.map_, penalty, self.out_of_fold_ = fitted
        self.C_ = penalty.C
        return self

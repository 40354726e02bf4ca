"""The statistics: arrays in, probabilities and measurements out. It knows nothing of text.

The import, and applying a map, need numpy only. `measure` and `comparison` import scikit-learn and
SciPy on first call; `certify` and the bounds import SciPy. The calibrators are scikit-learn
estimators; scikit-learn is imported when the first of them is used. `calibration.plots` needs
matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibration.maps import CalibrationMap, LogisticMap, TwoStageMap, map_from_dict
from calibration.monitoring.drift import Drift, Sketch, alarm, sketch
from calibration.monitoring.sequential import AccuracyMonitor, CalibrationMonitor
from calibration.reliability import Comparison, Reliability, comparison, measure
from calibration.score_maps import BetaMap, IsotonicMap, VennAbersMap
from calibration.segments import Segments
from calibration.selection import Choice, choose, cross_fit, grouped_folds
from calibration.thresholds import Certificate, certify, lower_bound, upper_bound

if TYPE_CHECKING:
    from calibration.calibrators import (
        BetaCalibrator,
        IsotonicCalibrator,
        LogisticCalibrator,
        PlattCalibrator,
        TemperatureCalibrator,
        TwoStageCalibrator,
        VennAbersCalibrator,
    )

_ESTIMATORS = (
    *("BetaCalibrator", "IsotonicCalibrator", "LogisticCalibrator", "PlattCalibrator"),
    *("TemperatureCalibrator", "TwoStageCalibrator", "VennAbersCalibrator"),
)

__all__ = [
    "AccuracyMonitor",
    "BetaCalibrator",
    "BetaMap",
    "CalibrationMap",
    "CalibrationMonitor",
    "Certificate",
    "Choice",
    "Comparison",
    "Drift",
    "IsotonicCalibrator",
    "IsotonicMap",
    "LogisticCalibrator",
    "LogisticMap",
    "PlattCalibrator",
    "Reliability",
    "Segments",
    "Sketch",
    "TemperatureCalibrator",
    "TwoStageCalibrator",
    "TwoStageMap",
    "VennAbersCalibrator",
    "VennAbersMap",
    "alarm",
    "certify",
    "choose",
    "comparison",
    "cross_fit",
    "grouped_folds",
    "lower_bound",
    "map_from_dict",
    "measure",
    "sketch",
    "upper_bound",
]


def __getattr__(name: str) -> Any:
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("calibration.calibrators"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"calibration.{name} needs scikit-learn ({error}): pip install "
            "'calibrated-rerank[train]'",
            name=error.name,
        ) from error


def __dir__() -> list[str]:
    return __all__

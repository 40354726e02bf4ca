"""The statistics: arrays in, probabilities and measurements out. It knows nothing of text.

To import what stands here, and to apply a map, takes numpy only. `measure` and `comparison` import
scikit-learn and SciPy when first called, `certify` and the bounds SciPy. The rest is imported from
its module, because it is heavy: `calibrators`, `fitting` and `score_fitting` (scikit-learn),
`plots` (matplotlib).
"""

from calibration.maps import (
    BetaMap,
    CalibrationMap,
    IsotonicMap,
    LogisticMap,
    TwoStageMap,
    VennAbersMap,
    map_from_dict,
)
from calibration.monitoring.drift import Drift, Sketch, alarm, sketch
from calibration.monitoring.sequential import AccuracyWatch, Watch
from calibration.reliability import Comparison, Reliability, comparison, measure
from calibration.segments import Segments
from calibration.selection import Choice, choose, cross_fit, grouped_folds
from calibration.thresholds import Certificate, certify, lower_bound, upper_bound

__all__ = [
    "AccuracyWatch",
    "BetaMap",
    "CalibrationMap",
    "Certificate",
    "Choice",
    "Comparison",
    "Drift",
    "IsotonicMap",
    "LogisticMap",
    "Reliability",
    "Segments",
    "Sketch",
    "TwoStageMap",
    "VennAbersMap",
    "Watch",
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

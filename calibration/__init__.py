"""The statistics: arrays in, probabilities and measurements out. It knows nothing of text.

Every function checks its arrays: a ValueError says what came and what was expected if a shape, a
type or a range is not that of the docstring, a number is not finite, a value is masked, or a label
is not 0 or 1. Values refuse numbers that do not fit together likewise. Docstrings name only what
else is refused. `groups` (n,) name which rows may depend on each other; None: every row is
independent. "numpy only" is said of what needs no SciPy and no scikit-learn.

The import, and applying a map, need numpy only. `measure` and `comparison` import scikit-learn and
SciPy on first call; `certify` and the bounds import SciPy. The calibrators are scikit-learn
estimators; scikit-learn is imported when one of them is used. `calibration.plots` needs matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibration.drift import Drift, Sketch, alarm, sketch
from calibration.label_selection import Sample, choose_rows, weighted_mean
from calibration.maps import (
    BetaMap,
    CalibrationMap,
    IsotonicMap,
    LogisticMap,
    TwoStageMap,
    map_from_dict,
)
from calibration.metrics import (
    augrc,
    aurc,
    auroc,
    auroc_interval,
    band,
    brier,
    brier_interval,
    corp,
    coverage,
    ece_debiased,
    expected_errors,
    log_loss,
    nauc,
    naurc,
    sample_null_labels,
    selective_accuracy,
    smece,
    smece_floor,
    smece_interval,
)
from calibration.metrics.intervals import Estimate
from calibration.prediction_powered import Powered, Strata, lower_draws, powered_mean
from calibration.recalibration import Recalibration, Segments, fit_recalibration
from calibration.reliability import Comparison, Reliability, comparison, measure
from calibration.selection import Choice, choose, cross_fit, grouped_folds
from calibration.sequential import AccuracyMonitor, CalibrationMonitor
from calibration.thresholds import (
    Certificate,
    certify,
    certify_judged,
    fixed_sequence,
    lower_bound,
    upper_bound,
)

if TYPE_CHECKING:
    from calibration.calibrators import (
        BetaCalibrator,
        IsotonicCalibrator,
        LogisticCalibrator,
        PlattCalibrator,
        TemperatureCalibrator,
        TwoStageCalibrator,
    )

__all__ = ["BetaMap", "CalibrationMap", "IsotonicMap", "LogisticMap", "TwoStageMap"]
__all__ += ["BetaCalibrator", "IsotonicCalibrator", "LogisticCalibrator", "PlattCalibrator"]
__all__ += ["TemperatureCalibrator", "TwoStageCalibrator", "map_from_dict"]
__all__ += ["Choice", "Segments", "choose", "cross_fit", "grouped_folds"]
__all__ += ["Comparison", "Reliability", "comparison", "measure"]
__all__ += ["augrc", "aurc", "auroc", "auroc_interval", "band", "brier", "brier_interval", "corp"]
__all__ += ["coverage", "ece_debiased", "expected_errors", "log_loss", "nauc", "naurc"]
__all__ += ["sample_null_labels", "selective_accuracy", "smece", "smece_floor", "smece_interval"]
__all__ += ["Certificate", "certify", "certify_judged", "fixed_sequence", "lower_bound"]
__all__ += ["Estimate", "Powered", "Sample", "Strata", "choose_rows", "lower_draws"]
__all__ += ["Recalibration", "fit_recalibration", "powered_mean", "upper_bound", "weighted_mean"]
__all__ += ["AccuracyMonitor", "CalibrationMonitor", "Drift", "Sketch", "alarm", "sketch"]


def __getattr__(name: str) -> Any:
    if not (name in __all__ and name.endswith("Calibrator")):
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

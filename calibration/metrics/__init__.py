"""How good probabilities are: pure functions of labels y and probabilities p.

y is (n,) of 0 and 1, p is (n,) in [0, 1], n >= 1; each function returns one float unless it says
otherwise. The import needs numpy only; SciPy and scikit-learn are imported when needed.
"""

from calibration.metrics.calibration_error import (
    ece_debiased,
    sample_null_labels,
    smece,
    smece_floor,
    smece_interval,
)
from calibration.metrics.intervals import MIN_GROUPS, auroc_interval
from calibration.metrics.scores import (
    augrc,
    aurc,
    auroc,
    band,
    brier,
    brier_interval,
    corp,
    coverage,
    expected_errors,
    log_loss,
    nauc,
    naurc,
    selective_accuracy,
)

__all__ = [
    "MIN_GROUPS",
    "augrc",
    "aurc",
    "auroc",
    "auroc_interval",
    "band",
    "brier",
    "brier_interval",
    "corp",
    "coverage",
    "ece_debiased",
    "expected_errors",
    "log_loss",
    "nauc",
    "naurc",
    "sample_null_labels",
    "selective_accuracy",
    "smece",
    "smece_floor",
    "smece_interval",
]

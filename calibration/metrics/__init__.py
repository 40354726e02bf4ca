"""How good probabilities are: pure functions of labels y and probabilities p.

y is (n,) of 0 and 1, p is (n,) in [0, 1], n >= 1; each function returns one float unless it says
otherwise. The import needs numpy only; SciPy and scikit-learn are imported when needed.
"""

from calibration.metrics.abstention import augrc, aurc, expected_errors, nauc, naurc
from calibration.metrics.binned import ece_debiased
from calibration.metrics.intervals import MIN_GROUPS, auroc_interval
from calibration.metrics.null_labels import sample_null_labels
from calibration.metrics.scores import (
    auroc,
    band,
    brier,
    brier_interval,
    corp,
    coverage,
    log_loss,
    selective_accuracy,
)
from calibration.metrics.smooth_ece import smece, smece_floor, smece_interval

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

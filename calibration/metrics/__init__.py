"""How good probabilities are: pure functions of labels y and probabilities p.

y is (n,) of 0 and 1, p is (n,) in [0, 1], n >= 1; each function checks them, and returns one float
unless it says otherwise. The import needs numpy only; others are imported when needed.
"""

from calibration.arrays import checked
from calibration.metrics import calibration_error, intervals, scores
from calibration.metrics.calibration_error import sample_null_labels, smece_floor
from calibration.metrics.intervals import MIN_GROUPS
from calibration.metrics.scores import coverage

augrc = checked(scores.augrc)
aurc = checked(scores.aurc)
auroc = checked(scores.auroc)
auroc_interval = checked(intervals.auroc_interval)
band = checked(scores.band)
brier = checked(scores.brier)
brier_interval = checked(scores.brier_interval)
corp = checked(scores.corp)
ece_debiased = checked(calibration_error.ece_debiased)
expected_errors = checked(scores.expected_errors)
log_loss = checked(scores.log_loss)
nauc = checked(scores.nauc)
naurc = checked(scores.naurc)
selective_accuracy = checked(scores.selective_accuracy)
smece = checked(calibration_error.smece)
smece_interval = checked(calibration_error.smece_interval)

__all__ = ["augrc", "aurc", "expected_errors", "nauc", "naurc", "selective_accuracy"]
__all__ += ["auroc", "auroc_interval", "band", "brier", "brier_interval", "corp", "coverage"]
__all__ += ["MIN_GROUPS", "ece_debiased", "log_loss", "sample_null_labels", "smece"]
__all__ += ["smece_floor", "smece_interval"]

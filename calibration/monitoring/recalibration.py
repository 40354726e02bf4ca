"""Few new labels to a map that has moved: slope and intercept of its log odds, shrunk to none.

Confidences and labels in; an update, what it is worth, and a new certificate out. It knows nothing
of how the confidences were made.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats, checked, log_odds
from calibration.effective import effective_n
from calibration.maps import LogisticMap
from calibration.metrics import log_loss
from calibration.monitoring.sequential import CalibrationMonitor
from calibration.reliability import Comparison, comparison
from calibration.selection import cross_fit
from calibration.thresholds import ABOUT, Certificate, certify

ROUNDING = 1e-12
"""Share by which a carried threshold is lower, so that rows at it are not lost to the last bit."""


@dataclass(frozen=True, slots=True)
class Recalibration:
    """The update, the certificate that the labels give, and how they fare with and without it."""

    update: LogisticMap
    certificate: Certificate
    table: Comparison  # "before", and "after" by updates that had not seen the row's group
    monitor: CalibrationMonitor  # the old confidences against the labels, one a group
    gain: float  # nats of log loss, before less after
    effective: float  # independent labels that they are worth
    # of each label, (n,): its group, what was right, and the two confidences of the table
    groups: Sequence[Hashable] | NDArray[Any] = field(compare=False, repr=False)
    right: Floats = field(compare=False, repr=False)
    before: Floats = field(compare=False, repr=False)
    after: Floats = field(compare=False, repr=False)

    def sentences(self) -> list[str]:
        """What was learned, what it is worth, and what is promised now."""
        slope, intercept = self.update.coef[0], self.update.intercept
        before = self.table["before"]
        return [
            f"{before.n} labels, worth {self.effective:.0f} independent ones: "
            f"{before.base_accuracy:.1%} of the top passages are right.",
            f"Log odds times {slope:.2f}, {intercept:+.2f}; log loss {self.gain:+.4f} nats better, "
            "cross-fitted.",
            self.monitor.sentence,
            self.certificate.sentence,
        ]


def fit_recalibration(
    p: ArrayLike,
    y: ArrayLike,
    groups: Sequence[Hashable] | NDArray[Any],
    *,
    target: float = 0.7,
    about: str = ABOUT,
    random_state: int = 0,
) -> Recalibration:
    """Learn from labels y (n,) of confidences p (n,) that a map gave which had not seen them.

    The certificate rests on the old confidences, which no label here has moved, and its threshold
    is carried through the update, which keeps their order. Labels of one group (n,), such as
    rephrasings of a question, count for what they are worth (`effective.design_effect`). `about`
    names the questions that the certificate is about.

    Raises:
        ValueError: as `calibration.arrays.checked`; fewer than two groups.
    """
    from calibration.shrinkage import fit_update

    right, before = checked(y, p)
    scores, number = log_odds(before), np.asarray(groups)
    update = fit_update(scores, right, number)
    after = cross_fit(
        fit_update,
        scores,
        right,
        number,
        folds=10,
        random_state=random_state,
    )
    found = certify(right, before, groups=number, target=target, about=about)
    if found.threshold is not None:
        moved = float(update.predict(log_odds([found.threshold]))[0])
        found = replace(found, threshold=moved * (1 - ROUNDING))
    table = comparison(
        {"before": before, "after": after},
        right,
        groups=number,
        threshold=target,
        random_state=random_state,
    )
    first = np.sort(np.unique(number, return_index=True)[1])
    monitor = CalibrationMonitor.start().update(right[first], before[first])
    gain = log_loss(right, before) - log_loss(right, after)
    worth = effective_n(right - before, number)
    return Recalibration(update, found, table, monitor, gain, worth, number, right, before, after)


def compose_updates(first: LogisticMap | None, second: LogisticMap) -> LogisticMap:
    """One update of log odds that does what two in a row do."""
    if first is None:
        return second
    a, b = first.coef[0], first.intercept
    c, d = second.coef[0], second.intercept
    return LogisticMap((a * c,), b * c + d, (0.0,), (1.0,))


def rebase_update(kind: LogisticMap, update: LogisticMap) -> LogisticMap:
    """The update of a kind for log odds that `update` has moved before it.

    Both in a row do what `kind` and then `update` do.
    """
    a, b = kind.coef[0], kind.intercept
    c, d = update.coef[0], update.intercept
    return LogisticMap((a,), c * b + d - a * d, (0.0,), (1.0,))

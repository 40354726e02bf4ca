"""Recalibrate a map with few new labels: slope and intercept of its log odds, shrunk to no change.

Confidences and labels in; an update, its gain, and a new certificate out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibration import arrays
from calibration.arrays import Floats, GroupNames
from calibration.effective_sample_size import effective_n
from calibration.maps import LogisticMap
from calibration.metrics.intervals import Interval, student_interval
from calibration.metrics.scores import row_losses
from calibration.monitoring.sequential import CalibrationMonitor
from calibration.prediction_powered import Judged, Strata, powered_mean
from calibration.reliability import Comparison, comparison
from calibration.selection import cross_fit
from calibration.thresholds import ABOUT, Certificate, certify, certify_judged

UNCHANGED = LogisticMap((1.0,), 0.0, (0.0,), (1.0,))  # the update that moves nothing
# relative reduction of a carried threshold, so that rounding does not lose the rows at it
ROUNDING = 1e-12

WORSE = (
    "The update makes the confidence worse: the log loss rises on labels that it was not fitted "
    "on, by more than chance explains. Keep the old model."
)


@dataclass(frozen=True, slots=True)
class Recalibration:
    """The update, the certificate of these labels, and the results with and without the update."""

    update: LogisticMap
    certificate: Certificate
    table: Comparison  # "before", and "after" by updates fitted without the row's group
    monitor: CalibrationMonitor  # the old confidences against the labels, one per group
    gain: float  # nats of log loss, before minus after
    gain_interval: Interval  # 95%, by group; NaN with fewer than ten groups
    effective: float  # effective number of independent labels
    # per label, (n,): its group, whether it was right, and the two confidences of the table
    groups: GroupNames = field(compare=False, repr=False)
    right: Floats = field(compare=False, repr=False)
    before: Floats = field(compare=False, repr=False)
    after: Floats = field(compare=False, repr=False)

    @property
    def worse(self) -> bool:
        """Whether the update is measurably worse than none: its gain is surely below zero."""
        return self.gain_interval[1] < 0

    def sentences(self) -> list[str]:
        """Whether the update is worse, what was learned, its gain, and what is promised now."""
        slope, intercept = self.update.coef[0], self.update.intercept
        before, effective = self.table["before"], round(self.effective)
        low, high = self.gain_interval
        low, high = (low, high) if self.gain >= 0 else (-high, -low)
        gain = f"{abs(self.gain):.4f} nats {'better' if self.gain >= 0 else 'worse'}"
        gain += "" if np.isnan(low) else f" [95%: {low:.4f} to {high:.4f}]"
        moved = f"Log odds times {slope:.2f}, {intercept:+.2f}; log loss {gain}, cross-fitted."
        if self.update == UNCHANGED:
            moved = "The confidence is unchanged: these labels only certify it."
        strata = self.certificate.strata
        judged = [f"Of all that is accepted, {powered_mean(strata).sentence}"] if strata else []
        worth = f", worth {effective} independent ones" if effective < before.n else ""
        return [
            *([WORSE] if self.worse else []),
            f"{before.n} labels{worth}: "
            f"{before.base_accuracy:.1%} of the labelled top passages are right.",
            moved,
            *judged,
            f"One label per group, in their order: {self.monitor.sentence}",
            self.certificate.sentence,
        ]


def fit_recalibration(
    p: ArrayLike,
    y: ArrayLike,
    groups: GroupNames,
    *,
    target: float,
    about: str = ABOUT,
    certifying: ArrayLike | None = None,
    accepted_from: float | None = None,
    judged: Judged | None = None,
    random_state: int = 0,
) -> Recalibration:
    """Learn from labels y (n,) of confidences p (n,); the map behind p must not have seen them.

    The certificate rests on the labels that are `certifying` (n,), None: all; `about` names the
    questions that it is about. If all labels are of a random sample of the rows with p >=
    `accepted_from`, p stays, and that one threshold is tested, with the whole chance of error. If
    these rows are `judged`, the sample is one of each stratum, and the test is that of
    `certify_judged`, by the first label of each group.

    Raises ValueError: also for fewer than two groups, or if no label is `certifying`.
    """
    from calibration.fitting import fit_update

    right, before = arrays.check_y_p(y, p)
    arrays.refuse_masked(certifying)
    rows = np.asarray(np.ones(len(right), np.bool_) if certifying is None else certifying)
    if rows.shape != right.shape or rows.dtype != np.bool_ or not rows.any():
        raise ValueError(
            f"certifying should be one truth value per label, shape ({len(right)},), and true for "
            f"one at least; got {rows.dtype.name} of shape {rows.shape}"
        )
    scores, number = arrays.log_odds(before), arrays.group_codes(groups, len(right))
    apart = arrays.sigmoid(scores)  # near 0 and 1 equal log odds: the update accepts these together
    if accepted_from is None:
        update = fit_update(scores, right, number)
        after = cross_fit(fit_update, scores, right, number, folds=10, random_state=random_state)
        lowest = float(apart[update.predict(scores) >= target].min(initial=np.inf))  # accepted
    else:
        update, after, lowest = UNCHANGED, before, accepted_from
        apart = np.full(len(right), lowest)
    first = np.sort(np.unique(number, return_index=True)[1])
    if accepted_from is None or judged is None:
        certificate = certify(
            right[rows], apart[rows], groups=number[rows], target=target, floor=lowest, about=about
        )
    else:
        kept = first[rows[first]]
        strata = Strata.of(right[kept], np.array(judged.stratum)[kept], judged.rows)
        certificate = certify_judged(
            strata, judge=judged.judge, threshold=lowest, target=target, about=about
        )
    if certificate.threshold is not None and not accepted_from:
        # of old confidences, which no label has influenced; the update keeps their order, so the
        # same rows reach the moved threshold
        moved = float(update.predict(arrays.log_odds([certificate.threshold]))[0])
        certificate = replace(certificate, threshold=moved * (1 - ROUNDING))
    options: dict[str, Any] = {"threshold": target, "random_state": random_state}
    table = comparison({"before": before, "after": after}, right, groups=number, **options)
    monitor = CalibrationMonitor.start().update(right[first], before[first])
    saved = row_losses(right, before) - row_losses(right, after)
    gain = student_interval(saved, number, unseen=1.0)  # nat
    return Recalibration(
        update=update,
        certificate=certificate,
        table=table,
        monitor=monitor,
        gain=gain.mean,
        gain_interval=gain.interval,
        effective=effective_n(right - before - (right - before).mean(), number),
        groups=number,
        right=right,
        before=before,
        after=after,
    )


def compose_updates(first: LogisticMap | None, second: LogisticMap) -> LogisticMap:
    """One update of log odds that equals `first` followed by `second`."""
    if first is None:
        return second
    (a,), b, (c,), d = first.coef, first.intercept, second.coef, second.intercept
    return LogisticMap((a * c,), b * c + d, (0.0,), (1.0,))


def rebase_update(segment: LogisticMap, update: LogisticMap) -> LogisticMap:
    """The update of a segment, for log odds that `update` has already moved.

    `update` followed by the result equals `segment` followed by `update`.
    """
    (a,), b, (c,), d = segment.coef, segment.intercept, update.coef, update.intercept
    return LogisticMap((a,), c * b + d - a * d, (0.0,), (1.0,))

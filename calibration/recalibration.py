"""Corrections of a map by labels that it has not seen: of all rows, and a small one per segment.

Slope and intercept of the log odds, shrunk to no change. Confidences and labels in; an update, its
gain, and a new certificate out. A segment (collection, language, source) with many labels gets its
own calibration, one with few stays with the common one: group calibration (Hébert-Johnson et al.
2018) of segments that do not overlap. Probabilities of an unseen segment stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration import arrays
from calibration.arrays import Floats, GroupNames, Groups
from calibration.maps import LogisticMap, map_from_dict
from calibration.metrics.intervals import Interval, effective_n, student_interval
from calibration.metrics.scores import row_losses
from calibration.prediction_powered import Judged, Strata, powered_mean
from calibration.reliability import Comparison, comparison
from calibration.selection import cross_fit, grouped_folds, held_out
from calibration.sequential import CalibrationMonitor
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


@dataclass(frozen=True, slots=True)
class Segments:
    """Updates of the log odds of a probability, for some segments; the others have none.

    Raises:
        ValueError: an update that takes more than one input.
    """

    updates: Mapping[str, LogisticMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for segment, update in self.updates.items():
            if not isinstance(update, LogisticMap) or len(update.coef) != 1:
                raise ValueError(f"the update of {segment!r} must be a logistic map of one input")

    def apply(self, p: ArrayLike, segments: GroupNames) -> Floats:
        """Return (n,) probabilities: p (n,) updated by the segments (n,), compared as text."""
        moved = arrays.as_scores(p).copy()
        names = as_segments(segments, len(moved))
        for segment in set(names.tolist()) & set(self.updates):
            rows = names == segment
            moved[rows] = self.updates[segment].predict(arrays.log_odds(moved[rows]))
        return moved

    def to_dict(self) -> dict[str, Any]:
        """Return the updates as plain JSON values, by segment."""
        return {segment: update.to_dict() for segment, update in self.updates.items()}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Segments:
        """Return what `to_dict` wrote; its numbers are the same to the last bit.

        Raises:
            ValueError: not a mapping, as `map_from_dict`, or an update of more than one input.
        """
        if not isinstance(d, Mapping):
            raise ValueError(f"expected an update per segment, got {str(d)[:80]}")
        updates: dict[str, Any] = {str(segment): map_from_dict(v) for segment, v in d.items()}
        return cls(updates)


def fit_segments(
    p: ArrayLike,
    y: ArrayLike,
    segments: GroupNames,
    groups: Groups = None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> tuple[Segments, Floats]:
    """Return an update for each segment (n,), from probabilities p (n,) and labels y (n,).

    With them come (n,) probabilities after updates fitted without the row's group.

    An update is `fit_update`: slope and intercept, shrunk towards no change, so ten rows of a
    segment move it little and a thousand as far as the data say. A row whose segment is "" has
    none: there is no update for it. p should come from a map that had not seen the rows and does
    not know the segments. ValueError also for fewer than two folds or two groups.
    """
    from calibration.fitting import Rows, update_of

    labels, old = arrays.check_y_p(y, p)
    number, scores = arrays.group_codes(groups, len(labels)), arrays.log_odds(old)
    names, moved = as_segments(segments, len(labels)), old.copy()
    rows_of = {segment: names == segment for segment in sorted(set(names.tolist()) - {""})}
    rows = Rows(scores[:, None], labels.astype(np.int64), number)
    for out in held_out(grouped_folds(number, folds, random_state=random_state)):
        for own in rows_of.values():
            if (fitted := own & ~out).any():
                moved[own & out] = update_of(rows.where(fitted)).predict_checked(scores[own & out])
    return Segments({s: update_of(rows.where(own)) for s, own in rows_of.items()}), moved


def as_segments(segments: GroupNames, n: int) -> NDArray[np.object_]:
    """Return (n,) segments as text of any length."""
    names = np.array([str(segment) for segment in segments], dtype=np.object_)
    if names.shape != (n,):
        raise ValueError(f"expected one segment per row, shape ({n},), got {names.shape}")
    return names

"""A cascade of two models, measured: the more expensive one answers where the first is unsure.

Both have answered the same labelled queries. Bands are chosen without labels, and on other queries
than those that they are measured on. So the labels measure the whole procedure, and certify a band.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from calibration.arrays import plain
from calibration.metrics import smece
from calibration.metrics.intervals import Estimate, student_interval
from calibration.selection import Band, choose_band, grouped_folds, held_out
from calibration.thresholds import Certificate, certify
from rerank.data.labels import Labels
from rerank.errors import InputError
from rerank.evaluation.measure import Evaluation
from rerank.types import Bools, Floats

SHARES = tuple(tenths / 10 for tenths in range(1, 10))  # of the curve, between never and always
CHOOSING = 3  # of so many folds one chooses the band that is certified on the others
KEPT = 0.9  # share of the gain that the chosen point should keep


class Stage(NamedTuple):
    """What a model answered: its confidences (n,), and whether its top passages are right (n,)."""

    confidence: Floats
    right: Labels


class Point(NamedTuple):
    """What a cascade does if the second model is asked for at most some share of the queries."""

    name: str
    asked: float  # share of the queries that the second model answers
    hit1: float
    accepted: float  # share of the queries that reach the threshold
    accuracy: float  # of the accepted; NaN if there are none
    smece: float  # of the confidence of whichever model answered


@dataclass(frozen=True, slots=True)
class Cascade:
    """The measured points, from never to always asking the second model, and the chosen one.

    Each is of all queries, with bands that were chosen on other folds. `band` is one band, that can
    be served: chosen on a third of the queries, and measured (`held`) and certified on the others.
    """

    points: tuple[Point, ...]
    chosen: Point
    band: Band  # at which the second model is to be asked
    held: Point  # what this band does on the queries that it was not chosen on
    most: float  # share of the queries that it may be asked for
    gain: Estimate  # of hit@1, if the second model is always asked
    threshold: float
    certificate: Certificate
    price: float | None  # of 1,000 queries to the second model

    @property
    def kept(self) -> float:
        """The share of the gain that the chosen point keeps; NaN without a gain."""
        kept = self.chosen.hit1 - self.points[0].hit1
        return kept / self.gain.mean if self.gain.mean > 0 else math.nan

    @property
    def worth_it(self) -> bool:
        """Whether the second model gains something, and the chosen point keeps `KEPT` of that."""
        return self.gain.low > 0 and self.kept >= KEPT

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; undefined values are None, and so is a band without any query."""
        values: dict[str, Any] = plain(
            {
                "points": [*self.points, self.chosen],
                "band": self.band if self.band.low <= self.band.high else None,
                "held": self.held,
                "most": self.most,
                "gain": self.gain,
                "kept": self.kept,
                "worth_it": self.worth_it,
                "threshold": self.threshold,
                "certificate": self.certificate.to_dict(),
                "price": self.price,
            }
        )
        return values

    def sentences(self) -> list[str]:
        """Whether the second model is worth asking, of which queries, and what is certified."""
        gain, chosen = self.gain, self.chosen
        always = f"always asking the second model changes hit@1 by {gain.mean:+.3f}"
        between = f"between {gain.low:+.3f} and {gain.high:+.3f} with 95% confidence"
        if not math.isfinite(gain.low):
            said = f"Not known whether it is worth it: {always}, of too few groups for an interval."
        elif gain.low <= 0:
            said = f"Not worth it, as far as these queries show: {always}, {between}."
        else:
            worth = "Worth it" if self.worth_it else "Not worth it as a cascade"
            said = (
                f"{worth}: {always} ({between}); asked for {chosen.asked:.0%} of the queries, it "
                f"keeps {self.kept:.0%} of that."
            )
        (low, high), held = self.band, self.held
        band = (
            f"The band: ask it where the first model's confidence is {low:.3f} to {high:.3f}. "
            f"Chosen on a third of the queries; of the others it asks for {held.asked:.0%}, with "
            f"hit@1 {held.hit1:.3f} and smECE {held.smece:.3f}."
        )
        if low > high:
            band = "No band: the second model expects no gain of any query."
        return [said, band, f"This band, by the other queries. {self.certificate.brief}"]

    def cells(self) -> list[tuple[str, ...]]:
        """The curve, from never to always: a header, then rows."""
        price = [] if self.price is None else ["cost of these"]
        heads = ("second model asked", "of 1,000 queries", *price)
        rows = [(*heads, "hit@1", f"at >= {self.threshold:g}", "right", "smECE")]
        for point in sorted([*self.points, self.chosen], key=lambda point: point.asked):
            cost = [] if self.price is None else [f"{point.asked * self.price:.2f}"]
            right = "-" if math.isnan(point.accuracy) else f"{point.accuracy:.3f}"
            calls = f"{1000 * point.asked:.0f}"
            shares = (f"{point.hit1:.3f}", f"{point.accepted:.3f}", right, f"{point.smece:.3f}")
            rows.append((point.name, calls, *cost, *shares))
        return rows


def expected_gains(first: Evaluation, second: Evaluation) -> dict[str, float]:
    """The chance that the second model's top passage is right less that of the first one's.

    Both by the second model, of each query that both have answered, by id, in the first one's
    order. So the gain is 0 where they agree on the top passage.
    """
    answers = zip(second.labelled.items, second.relevance, strict=True)
    asked = dict(zip(second.query_ids, answers, strict=True))
    gains = {}
    for ranking in first.labelled.items:
        if (query_id := ranking.query.query_id) in asked:
            other, relevance = asked[query_id]
            by_id = dict(zip(reversed(other.doc_ids), relevance[::-1].tolist(), strict=True))
            tops = (one.doc_ids[0] if len(one) else "" for one in (ranking, other))
            old, new = (by_id.get(top, 0.0) for top in tops)
            gains[query_id] = new - old
    return gains


def measure_cascade(
    first: Stage,
    second: Stage,
    gains: Floats,
    *,
    groups: Sequence[str],
    units: Sequence[str],
    most: float,
    threshold: float,
    folds: int,
    seed: int,
    price: float | None = None,
) -> Cascade:
    """Measure what asking the second model gains, for each share of the queries, and certify it.

    The models have answered the same n queries, which neither was fitted on, and count as accepted
    from `threshold` on. `gains` (n,) are the expected ones, by which bands are chosen: no label is
    read for that. `most` in (0, 1) is the share of the queries that the second model may be asked
    for, at the chosen point and by the band. `groups` (n,) keep folds apart; `units` (n,) are what
    was sampled.

    Raises:
        InputError: fewer than two groups.
    """
    if len(set(groups)) < 2:
        raise InputError(
            f"a cascade is measured on two groups of queries at least, got {len(set(groups))}"
        )
    fold_of = grouped_folds(groups, folds, random_state=seed)

    def asked_for(share: float) -> Bools:
        asked = np.zeros(len(fold_of), dtype=np.bool_)
        for held in held_out(fold_of):
            band = choose_band(first.confidence[~held], gains[~held], share)
            asked[held] = band.asks(first.confidence[held])
        return asked

    def answered(asked: Bools) -> Stage:
        return Stage(*(np.where(asked, b, a) for a, b in zip(first, second, strict=True)))

    def point(name: str, asked: Bools, rows: Bools) -> Point:
        confidence, right = (values[rows] for values in answered(asked))
        asked = asked[rows]
        accepted = confidence >= threshold
        accuracy = float(right[accepted].mean()) if accepted.any() else math.nan
        share, hit1, reached = (float(which.mean()) for which in (asked, right, accepted))
        return Point(name, share, hit1, reached, accuracy, smece(right, confidence))

    every = np.ones(len(fold_of), dtype=np.bool_)
    choosing = grouped_folds(groups, CHOOSING, random_state=seed) == 0
    band = choose_band(first.confidence[choosing], gains[choosing], most)
    held, asked = ~choosing, band.asks(first.confidence)
    confidence, right = (values[held] for values in answered(asked))
    measured = (second.right - first.right).astype(np.float64)
    return Cascade(
        points=(
            point("never", ~every, every),
            *(point(f"at most {share:.0%}", asked_for(share), every) for share in SHARES),
            point("always", every, every),
        ),
        chosen=point(f"chosen: at most {most:.0%}", asked_for(most), every),
        band=band,
        held=point("the band", asked, held),
        most=most,
        gain=student_interval(measured, groups, unseen=1.0),
        threshold=threshold,
        certificate=certify(
            right,
            confidence,
            groups=[unit for unit, is_held in zip(units, held, strict=True) if is_held],
            target=threshold,
            floor=threshold,
        ),
        price=price,
    )

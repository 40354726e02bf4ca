"""What a weighted sample of queries says of all queries that it was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.label_selection import weighted_mean
from calibration.metrics.intervals import UNKNOWN, Estimate
from rerank.data.labels import Labels
from rerank.types import Floats


@dataclass(frozen=True, slots=True)
class WeightedAccuracy:
    """How many of all queries are accepted, and what share of these is right, estimated."""

    threshold: float
    queries: float  # that the measured ones stand for: the sum of their weights
    accepted: float  # of these
    right: Estimate | None  # of the accepted; None if there are none
    own_sample: bool = True  # whether this model drew it; only then there is an interval

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        stood_for = f"the {self.queries:.0f} queries that these stand for"
        if self.right is None:
            return f"At {self.threshold:g}: none of {stood_for} is accepted, as far as these say."
        interval = "too few for an interval"
        if not self.own_sample:
            interval = "no interval: this model is not known to have drawn the sample"
        elif np.isfinite(self.right.low):
            interval = f"between {self.right.low:.1%} and {self.right.high:.1%} with 95% confidence"
        return (
            f"At {self.threshold:g}: of {stood_for}, about {self.accepted:.0f} are accepted "
            f"({self.accepted / self.queries:.0%}), and {self.right.mean:.1%} of these are right "
            f"({interval})."
        )


def weighted_accuracy(
    confidence: Floats,
    right: Labels,
    weights: Floats,
    groups: Sequence[str],
    threshold: float,
    *,
    own_sample: bool = True,
) -> WeightedAccuracy:
    """The estimate from confidences, hits and weights (n,); groups (n,) as elsewhere.

    If the sample is not this model's (`own_sample`), its strata do not tell which queries the model
    accepts: a part of the queries of which nothing was drawn may be accepted, too. Then the
    estimate has no interval.
    """
    accepted = confidence >= threshold
    share = None
    if accepted.any():
        share = weighted_mean(right, weights, np.array(groups), among=accepted)
        share = share if own_sample else Estimate(share.mean, *UNKNOWN)
    reached = float(weights[accepted].sum())
    return WeightedAccuracy(threshold, float(weights.sum()), reached, share, own_sample)

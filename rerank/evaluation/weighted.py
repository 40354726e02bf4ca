"""What a weighted sample of queries says of all queries that it was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.label_selection import weighted_mean
from calibration.metrics.intervals import Estimate
from rerank.data.labels import Labels
from rerank.types import Floats


@dataclass(frozen=True, slots=True)
class WeightedAccuracy:
    """How many of all queries are accepted, and what share of these is right, estimated."""

    threshold: float
    queries: float  # that the measured ones stand for: the sum of their weights
    accepted: float  # of these
    right: Estimate | None  # of the accepted; None if there are none

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        stood_for = f"the {self.queries:.0f} queries that these stand for"
        if self.right is None:
            return f"At {self.threshold:g}: none of {stood_for} is accepted, as far as these say."
        interval = (
            f"between {self.right.low:.1%} and {self.right.high:.1%} with 95% confidence"
            if np.isfinite(self.right.low)
            else "too few for an interval"
        )
        return (
            f"At {self.threshold:g}: of {stood_for}, about {self.accepted:.0f} are accepted "
            f"({self.accepted / self.queries:.0%}), and {self.right.mean:.1%} of these are right "
            f"({interval})."
        )


def weighted_accuracy(
    confidence: Floats, right: Labels, weights: Floats, groups: Sequence[str], threshold: float
) -> WeightedAccuracy:
    """The estimate from confidences, hits and weights (n,); groups (n,) as elsewhere."""
    accepted = confidence >= threshold
    share = None
    if accepted.any():
        share = weighted_mean(right[accepted], weights[accepted], np.array(groups)[accepted])
    reached = float(weights[accepted].sum())
    return WeightedAccuracy(threshold, float(weights.sum()), reached, share)

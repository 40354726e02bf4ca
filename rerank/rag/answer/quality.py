"""The confidence of a generated answer, from its retrieval's confidence and its attribution.

Fitted on labelled answers; without labels there is only the confidence of the retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.arrays import log_odds
from calibration.maps import LogisticMap, map_from_dict
from rerank.errors import InputError, optional
from rerank.types import Floats

MIN_LABELS = 30  # labelled answers that a fit needs
EARLIER = 5  # inputs of earlier maps, of which the second to fourth were always 1


@dataclass(frozen=True, slots=True)
class AnswerConfidence:
    """The fitted map; plain JSON on disk."""

    map: LogisticMap

    def confidence(self, retrieval: float, coverage: float) -> float:
        """P(the answer is right), from its retrieval's confidence and its attribution coverage.

        Raises:
            InputError: a number outside [0, 1].
        """
        return float(self.map.predict(_inputs([retrieval], [coverage]))[0])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return self.map.to_dict()

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> AnswerConfidence:
        """Read `to_dict`'s value; an InputError if it is none."""
        try:
            read = map_from_dict(kept)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"no confidence of answers can be read: {error}") from None
        if not isinstance(read, LogisticMap) or len(read.coef) not in (2, EARLIER):
            raise InputError("expected a logistic map of 2 inputs")
        if len(read.coef) == EARLIER:  # what is always 1 goes into the intercept
            of_ones = zip(read.coef[1:4], read.mean[1:4], read.scale[1:4], strict=True)
            added = sum(weight * (1.0 - mean) / scale for weight, mean, scale in of_ones)
            names = ("coef", "mean", "scale", "low", "high")
            ends = {name: getattr(read, name)[:1] + getattr(read, name)[4:] for name in names}
            read = LogisticMap(intercept=read.intercept + added, **ends)
        return cls(read)


def fit_answer_confidence(
    retrieval: Sequence[float], coverage: Sequence[float], right: Sequence[int]
) -> AnswerConfidence:
    """Logistic regression of `right` (n,) on the retrieval's log-odds and the coverage.

    Raises:
        InputError: fewer than 30 answers, only one outcome among them, numbers outside [0, 1], or
            arguments of different lengths.
    """
    with optional():
        from calibration.fitting import fit_logistic

    counts = len(retrieval), len(coverage), len(right)
    if len(set(counts)) > 1:
        got = "{}, {} and {}".format(*counts)
        raise InputError(f"expected a confidence, a coverage and an outcome per answer, got {got}")
    if len(right) < MIN_LABELS or len(set(right)) < 2:
        got = f"{len(right)} of which {sum(right)} are right"
        expected = f"{MIN_LABELS} labelled answers or more, right and wrong ones"
        raise InputError(f"expected {expected}, got {got}")
    return AnswerConfidence(fit_logistic(_inputs(retrieval, coverage), right))


def _inputs(retrieval: Sequence[float], coverage: Sequence[float]) -> Floats:
    numbers = np.array([retrieval, coverage], dtype=np.float64)
    if not ((numbers >= 0) & (numbers <= 1)).all():
        got = f"{retrieval!r:.99} and {coverage!r:.99}"
        raise InputError(f"expected numbers from 0 to 1, got {got}")
    return np.column_stack([log_odds(numbers[0]), numbers[1]])

"""The confidence of a generated answer, from its retrieval's confidence and its own quality.

Fitted on labelled answers; without labels there is only the confidence of the retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from calibration.arrays import log_odds
from calibration.maps import LogisticMap, map_from_dict
from rerank.errors import InputError, optional
from rerank.types import Floats

MIN_LABELS = 30  # labelled answers that a fit needs


@dataclass(frozen=True, slots=True)
class AnswerQuality:
    """The quality of an answer as measured without reading it; each number is in [0, 1]."""

    parses: float = 1.0  # 1 if it has the requested format
    required_fields: float = 1.0  # share of the required fields that are present
    optional_fields: float = 1.0  # likewise for the optional ones
    attribution_coverage: float = 1.0

    def __post_init__(self) -> None:
        """Refuse numbers outside [0, 1]."""
        if not all(0 <= value <= 1 for value in astuple(self)):
            raise InputError(f"expected numbers from 0 to 1, got {self}")


@dataclass(frozen=True, slots=True)
class AnswerConfidence:
    """The fitted map; plain JSON on disk."""

    map: LogisticMap

    def confidence(self, retrieval: float, quality: AnswerQuality) -> float:
        """P(the answer is right), from the confidence of its retrieval and its quality."""
        return float(self.map.predict(_inputs([retrieval], [quality]))[0])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return self.map.to_dict()

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> AnswerConfidence:
        """Read `to_dict`'s value.

        Raises:
            InputError: it is not such a value.
        """
        try:
            found = map_from_dict(kept)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"no confidence of answers can be read: {error}") from None
        if not isinstance(found, LogisticMap) or len(found.coef) != 5:
            raise InputError("expected a logistic map of 5 inputs")
        return cls(found)


def fit_answer_confidence(
    retrieval: Sequence[float], qualities: Sequence[AnswerQuality], right: Sequence[int]
) -> AnswerConfidence:
    """Logistic regression of `right` (n,) on the retrieval's log-odds and the quality.

    Raises:
        InputError: fewer than 30 answers, only one outcome among them, or arguments of different
            lengths.
    """
    with optional():
        from calibration.fitting import fit_logistic

    if not len(retrieval) == len(qualities) == len(right):
        raise InputError(
            "expected one confidence, one quality and one outcome per answer, got "
            f"{len(retrieval)}, {len(qualities)} and {len(right)}"
        )
    if len(right) < MIN_LABELS or len(set(right)) < 2:
        raise InputError(
            f"expected {MIN_LABELS} labelled answers or more, right and wrong ones, got "
            f"{len(right)} of which {sum(right)} are right"
        )
    return AnswerConfidence(fit_logistic(_inputs(retrieval, qualities), right))


def _inputs(retrieval: Sequence[float], qualities: Sequence[AnswerQuality]) -> Floats:
    rows = np.array([astuple(quality) for quality in qualities], dtype=np.float64)
    return np.column_stack([log_odds(np.array(retrieval, dtype=np.float64)), rows])

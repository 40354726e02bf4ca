"""Assessments whose every number is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hand_made import make_ranking

from rerank.assessment.ranking_features import ranking_features
from rerank.config import Thresholds
from rerank.types import Assessment


def make_assessment(
    *,
    sufficiency: Sequence[float] = (),
    confidence: float | None = None,
    relevance: Sequence[float] | None = None,
    thresholds: Thresholds | None = None,
    **numbers: Any,
) -> Assessment:
    """An assessment of sufficiency at k = 1, 2, ...; the last one stands for all further k.

    `relevance` is the confidence throughout, where it is not given; `numbers` are those of
    `make_ranking`.
    """
    given = list(sufficiency) or [0.5 if confidence is None else confidence]
    at = np.maximum.accumulate(given + given[-1:] * (10 - len(given)))
    sure = float(at[0]) if confidence is None else confidence
    ranking = make_ranking(**numbers)
    return Assessment(
        ranking=ranking,
        relevance=np.array([sure] * len(ranking) if relevance is None else relevance, float),
        confidence=sure,
        sufficiency_at=tuple(at.tolist()),
        sufficiency_k=5,
        thresholds=thresholds or Thresholds(),
        certified=False,
        reasons=(),
        features=ranking_features([ranking])[0],
        mode="search",
    )

"""Samples the queries to label: a weighted sample of those that a model was not fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibration.label_selection import Quantity, choose_rows
from rerank.assessment.model import CalibratedReranker
from rerank.data.canonical import query_hash
from rerank.types import Assessment, Query

How = Quantity | Literal["even"]


@dataclass(frozen=True, slots=True)
class SampledQuery:
    """A query to label, the model's assessment and version, and how many queries it stands for."""

    query: Query
    answer: Assessment
    weight: float
    drawn_by: str


def fresh_queries(
    model: CalibratedReranker, queries: Iterable[Query], taken: Set[str] = frozenset()
) -> list[Query]:
    """The queries that the model was not fitted on and whose `query_hash` is not in `taken`."""
    known = model.fitted_on | taken
    return [query for query in queries if query_hash(query.text) not in known]


def sample(
    model: CalibratedReranker,
    queries: Sequence[Query],
    count: int,
    *,
    how: How,
    seed: int,
) -> list[SampledQuery]:
    """Sample `count` of the queries, in their order: uniformly, or stratified by confidence.

    Stratification is for the accuracy above the advisory threshold, or for the map: see
    `calibration.label_selection`.
    """
    answers = model.assess(queries, label="assessing")
    if how == "even":
        rows = np.sort(np.random.default_rng(seed).permutation(len(queries))[:count])
        weights = np.full(count, len(queries) / count)
    else:
        chosen = choose_rows(
            [answer.confidence for answer in answers],
            count,
            quantity=how,
            threshold=model.pipeline.config.thresholds.advisory,
            random_state=seed,
        )
        rows, weights = chosen.rows, chosen.weights
    return [
        SampledQuery(queries[row], answers[row], weight, model.version)
        for row, weight in zip(rows.tolist(), weights.tolist(), strict=True)
    ]

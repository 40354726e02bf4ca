"""Which queries to label next: a sample of them, with weights that later estimates use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibration.label_selection import Quantity, choose_rows
from rerank.assessment.model import CalibratedReranker
from rerank.data.records import query_row
from rerank.data.text import query_hash, to_json
from rerank.data.weights import WEIGHT
from rerank.errors import InputError
from rerank.storage.files import write_file
from rerank.types import Query


def label_next(
    model: CalibratedReranker,
    queries: Sequence[Query],
    count: int,
    out: str | Path,
    *,
    quantity: Quantity = "accuracy",
    seed: int = 0,
) -> int:
    """Write `count` of the queries to label to `out`, with the passage to judge; return how many.

    Queries that the model was fitted on are left out. The sample is stratified by confidence (see
    `calibration.label_selection`), for the accuracy above the advisory threshold or for the map.
    Each line is a query with `metadata.weight`, its confidence and its top passage: add `right` to
    it, true or false, and it is a label for `recalibrate`.

    Raises:
        InputError: fewer queries than `count`.
    """
    known = model.fitted_on
    fresh = [query for query in queries if query_hash(query.text) not in known]
    if not 1 <= count <= len(fresh):
        raise InputError(
            f"expected at least {count} queries that the model was not fitted on, got {len(fresh)}"
        )
    found = model.assess(fresh, label="assessing")
    drawn = choose_rows(
        np.array([answer.confidence for answer in found]),
        count,
        quantity=quantity,
        threshold=model.pipeline.config.thresholds.medium,
        random_state=seed,
    )
    lines = []
    for row, weight in zip(drawn.rows.tolist(), drawn.weights.tolist(), strict=True):
        top, query = found[row].top, query_row(fresh[row])
        told = {"doc_id": top.doc_id, "title": top.title, "text": top.text} if top else None
        query["metadata"] = {**query.get("metadata", {}), WEIGHT: weight}
        lines.append(to_json({**query, "confidence": found[row].confidence, "top": told}) + "\n")
    write_file(out, lines)
    return len(lines)

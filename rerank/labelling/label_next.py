"""Which queries to label next: a sample of them, with weights that later estimates use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.label_selection import Quantity
from rerank.assessment.model import CalibratedReranker
from rerank.data.canonical import to_json
from rerank.data.feedback import question_key
from rerank.data.records import query_row
from rerank.data.weights import DRAWN_BY, WEIGHT
from rerank.errors import FolderError, InputError
from rerank.labelling.drawing import SampledQuery, fresh_queries, sample
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
    overwrite: bool = False,
) -> int:
    """Write a sample of `count` queries to `out`, each with the passage to judge; return how many.

    Queries that the model was fitted on are left out, and a question that was asked several times
    counts once. The sample is stratified by confidence (see
    `calibration.label_selection`), to estimate the accuracy above the advisory threshold or to fit
    the map. Each line is a query with `metadata.weight`, its confidence and its top passage: add
    `right` to it, true or false, and it is a label for `recalibrate`.

    Raises:
        InputError: fewer queries than `count`, or a negative seed.
        FolderError: `out` exists, and `overwrite` is False: labels that it holds would be lost.
    """
    if Path(out).exists() and not overwrite:
        raise FolderError(
            f"{out} exists, and labels in it would be lost; give another --out, or --overwrite"
        )
    if seed < 0:
        raise InputError(f"`seed` (--seed) should be 0 or more, got {seed}")
    fresh = list({question_key(query): query for query in fresh_queries(model, queries)}.values())
    if count < 1:
        raise InputError(f"`count` should be 1 or more, got {count}")
    if count > len(fresh):
        raise InputError(
            f"expected at least {count} different queries that the model was not fitted on, "
            f"got {len(fresh)}; give more queries, or a lower --count"
        )
    sampled = sample(model, fresh, count, how=quantity, seed=seed)
    write_file(out, (to_json(_row(query)) + "\n" for query in sampled))
    return len(sampled)


def _row(sampled: SampledQuery) -> dict[str, Any]:
    top, row = sampled.answer.top, query_row(sampled.query)
    drawn = {WEIGHT: sampled.weight, DRAWN_BY: sampled.drawn_by}
    row["metadata"] = {**row.get("metadata", {}), **drawn}
    shown = {"doc_id": top.doc_id, "title": top.title, "text": top.text} if top else None
    return {**row, "confidence": sampled.answer.confidence, "top": shown}

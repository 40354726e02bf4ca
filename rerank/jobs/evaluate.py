"""Measure a calibrated model on a split of a labelled set, and say what flatters the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rerank.assessor import CalibratedReranker
from rerank.fitting.plan import unseen
from rerank.jobs.workspace import pipeline_over
from rerank.reporting.measuring import Evaluation, evaluate
from rerank.sets.grouping import grouped
from rerank.sets.labelled_set import LabelledSet
from rerank.text import query_hash
from rerank.transformer.models import trained_on
from rerank.types import InputError


def evaluate_model(
    model: CalibratedReranker, labelled: LabelledSet, split: str, *, work: Path
) -> tuple[Evaluation, tuple[str, ...]]:
    """Measure a model on a split, on the set's own corpus; and what flatters the figures, if any.

    Where the corpus is another than the model's, it is indexed under `work`. Queries that the
    cross-encoder was trained on are left out.

    Raises:
        InputError: no such split, or no query left in it.
    """
    config, calibrators = model.pipeline.config, model.calibrators
    asked = [query.query_id for query in labelled.asked(split)[0]]
    pipeline = pipeline_over(labelled, model, work)
    ids = unseen(labelled, asked, trained_on(pipeline.reranker.files))
    if not asked:
        raise InputError(f"{labelled.name}: its split {split!r} is empty")
    if not ids:
        raise InputError(f"{labelled.name}: the cross-encoder was trained on all of {split!r}")
    notes = []
    if len(ids) < len(asked):
        gone = len(asked) - len(ids)
        notes.append(f"left out: {gone} queries that the cross-encoder was trained on.")
    fitted_on = model.fitted_on
    again = sum(query_hash(labelled.queries[i].text) in fitted_on for i in ids)
    if again:
        notes.append(f"warning: the model was fitted on {again} of these; it will look better.")
    reading, labelled = calibrators.reading, grouped(labelled, ids)
    whole = pipeline.rank(
        [labelled.queries[i] for i in ids], replace(reading, floor=0.0), label="reranking queries"
    )
    return evaluate(whole, labelled, calibrators, config), tuple(notes)

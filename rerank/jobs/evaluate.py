"""Measure a calibrated model on a split of a labelled set, and say what flatters the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.data.text import query_hash
from rerank.errors import InputError
from rerank.evaluation.evaluate import Evaluation, evaluate
from rerank.fitting.plan import unseen
from rerank.inference.model_files import trained_on
from rerank.workspace import pipeline_over


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
    reading = calibrators.reading
    whole = pipeline.rank(
        [labelled.queries[i] for i in ids], replace(reading, floor=0.0), label="reranking queries"
    )
    return evaluate(whole, labelled, calibrators, config), tuple(notes)

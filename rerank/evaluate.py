"""Measure a calibrated model on a split of a labelled set, and say what flatters the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rerank.assessor import FITTED_ON, CalibratedReranker
from rerank.labelled_set import LabelledSet
from rerank.measuring import Evaluation, evaluate
from rerank.models import trained_on
from rerank.plan import unseen
from rerank.text import query_hash
from rerank.types import InputError
from rerank.workspace import open_pipeline, score_cache


def evaluate_model(
    folder: Path, labelled: LabelledSet, split: str, *, work: Path
) -> tuple[Evaluation, tuple[str, ...]]:
    """Measure a model on a split, on the set's own corpus; and what flatters the figures, if any.

    Where the corpus is another than the model's, it is indexed under `work`. Queries that the
    cross-encoder was trained on are left out.

    Raises:
        InputError: not a model folder, no such split, or no query left in it.
    """
    if split not in labelled.splits:
        raise InputError(f"{labelled.name} has no split {split!r}; it has {list(labelled.splits)}")
    model = CalibratedReranker.load(folder, cache=score_cache(work))
    config, calibrators = model.pipeline.config, model.calibrators
    pipeline = model.pipeline
    if labelled.corpus_digest() != model.manifest["corpus_digest"]:
        pipeline = open_pipeline(labelled, config, work)
    ids = unseen(labelled, labelled.splits[split], trained_on(pipeline.reranker.files))
    if not labelled.splits[split]:
        raise InputError(f"{labelled.name}: its split {split!r} is empty")
    if not ids:
        raise InputError(f"{labelled.name}: the cross-encoder was trained on all of {split!r}")
    notes = []
    if len(ids) < len(labelled.splits[split]):
        gone = len(labelled.splits[split]) - len(ids)
        notes.append(f"left out: {gone} queries that the cross-encoder was trained on.")
    fitted_on = set((folder / FITTED_ON).read_text(encoding="utf-8").split())
    again = sum(query_hash(labelled.queries[i].text) in fitted_on for i in ids)
    if again:
        notes.append(f"warning: the model was fitted on {again} of these; it will look better.")
    reading = calibrators.reading
    whole = pipeline.rank(
        [labelled.queries[i] for i in ids], replace(reading, floor=0.0), label="reranking queries"
    )
    return evaluate(whole, labelled, calibrators, config), tuple(notes)

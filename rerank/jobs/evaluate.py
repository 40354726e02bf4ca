"""Measure a calibrated model on a split of a labelled set, and say what flatters the figures."""

from __future__ import annotations

from pathlib import Path

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import ReadPolicy
from rerank.data.grouping import grouped
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.data.text import query_hash
from rerank.errors import InputError
from rerank.evaluation.evaluate import Evaluation, measure
from rerank.fitting.plan import unseen
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import pipeline_over
from rerank.workspace import Workspace


def evaluate(
    model: CalibratedReranker,
    labelled: LabelledSet,
    split: str = "test",
    *,
    work: str | Path = "work",
) -> Evaluation:
    """Measure a model on a split, on the set's own corpus.

    Where the corpus is another than the model's, it is indexed under `work`. Queries that the
    cross-encoder was trained on are left out. `notes` of the result say what flatters the figures.

    Raises:
        InputError: no such split, or no query left in it.
    """
    in_split = labelled.split(split)
    pipeline = pipeline_over(labelled, model, Workspace(Path(work)))
    ids = unseen(labelled, in_split, trained_on(pipeline.reranker.files))
    if not ids:
        raise InputError(f"{labelled.name}: the cross-encoder was trained on all of {split!r}")
    notes = []
    if len(ids) < len(in_split):
        gone = len(in_split) - len(ids)
        notes.append(f"left out: {gone} queries that the cross-encoder was trained on.")
    queries = grouped(labelled, ids).select(ids)
    fitted_on = model.fitted_on
    known = sum(query_hash(query.text) in fitted_on for query in queries.items)
    if known:
        notes.append(f"warning: the model was fitted on {known} of these; it will look better.")
    maps = model.maps["search"]
    everything = ReadPolicy(maps.policy.prior, cutoff=0.0)
    scored = pipeline.run(queries.items, everything, label="scoring candidates")
    labelled_scores = Labelled(scored, queries.groups, queries.grades)
    return measure(labelled_scores, maps, pipeline.config, notes=notes)

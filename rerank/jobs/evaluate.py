"""Measure a calibrated model on a split of a labelled set, and note what makes it look too good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from rerank.assessment.fitted_maps import pooled_over
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import ReadPolicy
from rerank.cores import one_blas_thread
from rerank.data.grouping import grouped
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import drawn_at_random, drawn_by, weights_of
from rerank.errors import InputError
from rerank.evaluation.baselines import baselines_of
from rerank.evaluation.measure import OURS, Evaluation, Part, measure, weighted_accuracy
from rerank.fitting.plan import unseen
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import pipeline_over
from rerank.workspace import Workspace


def grouped_as(labelled: LabelledSet, model: CalibratedReranker) -> LabelledSet:
    """The set with its queries grouped as those of the model were, unless it is grouped already."""
    if not model.group_by or labelled.group_by:
        return labelled
    return labelled.grouped_by(model.group_by)


@one_blas_thread()
def evaluate(
    model: CalibratedReranker,
    labelled: LabelledSet,
    split: str = "test",
    *,
    work: str | Path = "work",
) -> Evaluation:
    """Measure a model on a split, on the set's own corpus.

    If that is not the model's corpus, it is indexed under `work`. Queries that its models were
    trained on, or the pooled maps fitted on, are left out. `notes` of the result say what makes the
    figures too good. If queries have weights (`rerank.labelling.drawing`), `weighted` is the
    estimate for all queries that they were drawn from, with an interval if this model drew them;
    all else is of these alone.

    Raises:
        InputError: no such split, no query left in it, or only some of them have a weight; or
            another search system holds none of the passages that the labels name.
        RetrieverError: that system does not answer.
    """
    labelled = grouped_as(labelled, model)
    in_split, notes = labelled.split(split), list[str]()
    labelled, missing = model.source.held(labelled)  # its passages tell which queries go together
    notes += missing
    pipeline = pipeline_over(labelled, model, Workspace(Path(work)))
    known = frozenset[str]()
    if not labelled.lists:
        models = pipeline.model_files
        known = trained_on(*models) | pooled_over(models, pipeline.config)
    ids = unseen(labelled, in_split, known)
    if not ids:
        raise InputError(f"{labelled.name}: the models were trained on all of {split!r}")
    if len(ids) < len(in_split):
        n_left_out = len(in_split) - len(ids)
        notes.append(f"left out: {n_left_out} queries that a model or pooled map has seen.")
    queries = grouped(labelled, ids).select(ids)
    fitted_here = len(ids) - len(unseen(labelled, ids, model.fitted_on))
    if fitted_here:
        notes.append(
            f"warning: the model was fitted on {fitted_here} of these, or on queries of their "
            "groups; it will look better."
        )
    weights = weights_of(queries.items)
    if not drawn_at_random(queries.items):
        of_all = "; only `weighted`, the first sentence, is of all" if weights else ""
        notes.append(
            "warning: these queries are no random sample: they were drawn by their confidence, or "
            f"different shares of several files. All figures are of these alone{of_all}."
        )
    maps = model.maps[labelled.mode]
    no_cutoff = ReadPolicy(maps.policy.prior, cutoff=0.0)
    scored = pipeline.run(queries.items, no_cutoff, label="scoring candidates")
    part = Part(queries.with_items(scored), maps, baselines_of(maps.kind))
    evaluation = replace(measure([part], pipeline.config), notes=tuple(notes))
    if not weights:
        return evaluation
    weighted = weighted_accuracy(
        evaluation.confidences[OURS],
        evaluation.right,
        np.array([weights[i] for i in evaluation.query_ids]),
        evaluation.labelled.groups.tolist(),
        evaluation.table[OURS].threshold,
        own_sample=drawn_by(queries.items, model.version),
    )
    return replace(evaluation, weighted=weighted)

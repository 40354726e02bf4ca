"""The labels that a model is recalibrated on, and the pipeline that ranks their queries."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.data.canonical import query_hash
from rerank.data.feedback import (
    LATER,
    Feedback,
    check_known_passages,
    feedback_of,
    newest_of_each,
    read_feedback,
    without_moved,
)
from rerank.data.labelled_set import LabelledSet, given_group, grouped_query
from rerank.data.weights import WEIGHT
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import pipeline_over
from rerank.workspace import Workspace

WEIGHTED = (
    "labels with a weight, which is not used: {count}. A correction of the confidence takes none, "
    "which is right for labels that were drawn by the confidence of this model. The figures are of "
    "the labelled answers, not of all that they were drawn from; `rerank evaluate` of a labelled "
    "set weighs them."
)


def labels_and_pipeline(
    model: CalibratedReranker,
    feedback: Sequence[Feedback] | LabelledSet | str | Path,
    split: str,
    work: Workspace,
) -> tuple[Sequence[Feedback], Pipeline, Mapping[str, Any]]:
    """The labels, the pipeline that ranks their queries, and manifest entries of a new corpus.

    A model of lists, or over another search system, has no corpus that labels could change. If the
    model was calibrated with groups by other metadata (`LabelledSet.group_by`), so are the labels.
    """
    if isinstance(feedback, (str, Path)):
        path = Path(feedback)
        feedback = LabelledSet.read(path) if path.is_dir() else read_feedback(path)
    group_by = model.group_by
    own = model.source.folder is not None  # an index of its own
    if isinstance(feedback, LabelledSet):
        feedback = feedback.grouped_by(group_by) if group_by else feedback
        labels = feedback_of(feedback, split)
        if not own:
            return labels, model.pipeline, {}
        grouped = {"group_by": group_by} if group_by else {}  # also if none of these has the key
        corpus = {
            "dataset": feedback.described() | grouped,
            "corpus_digest": feedback.corpus_digest(),
        }
        return labels, pipeline_over(feedback, model, work), corpus
    if group_by:
        feedback = [replace(f, query=grouped_query(f.query, group_by)) for f in feedback]
    if own:
        check_known_passages(feedback, model.source.passages())
    return feedback, model.pipeline, {}


def usable_labels(
    model: CalibratedReranker, feedback: Sequence[Feedback], max_labels: int | None
) -> tuple[list[Feedback], list[str]]:
    """The labels to use, one per question, and notes on those left out, and on their weights."""
    usable, notes = fresh(model, feedback), []
    if len(usable) < len(feedback):
        notes.append(
            f"left out: {len(feedback) - len(usable)} labels of queries that the model was fitted "
            "or recalibrated on, or its networks trained on."
        )
    usable, moved = without_moved(usable, model.assess)
    newest = newest_of_each(usable)
    again = len(usable) - len(newest)
    repeated = [f"left out: {again} labels, because {LATER}."] if again else []
    labels = list(subsample(newest, max_labels))
    weighted = sum(WEIGHT in f.query.metadata for f in labels)
    weights = [WEIGHTED.format(count=weighted)] if weighted else []
    return labels, [*notes, *moved, *repeated, *weights]


def fresh(model: CalibratedReranker, feedback: Sequence[Feedback]) -> list[Feedback]:
    """The labels of queries that neither the maps were fitted on nor the models trained on.

    If one query of a group is known, the whole group is left out, also of one that `metadata.group`
    names: the confidence looks too good there.
    """
    seen = model.fitted_on
    if model.source.scores_passages:
        seen |= trained_on(*model.pipeline.model_files)
    groups = [{f.group, given_group(f.query)} - {""} for f in feedback]
    rows = list(zip(feedback, groups, strict=True))
    known = {g for f, of_label in rows if query_hash(f.query.text) in seen for g in of_label}
    return [f for f, of_label in rows if known.isdisjoint(of_label)]


def subsample(
    feedback: Sequence[Feedback], max_labels: int | None, *, seed: int = 0
) -> Sequence[Feedback]:
    """At most `max_labels` of the labels, drawn at random, in their old order.

    The first labels of a file are often about one subject, and represent only that.
    """
    if max_labels is None or max_labels >= len(feedback):
        return feedback
    rows = random.Random(seed).sample(range(len(feedback)), max_labels)
    return [feedback[i] for i in sorted(rows)]

"""Measure a calibrated model on a split of a labelled set, and note what makes it look too good.

Likewise predictions that anything made: no model is opened. Without labels: have the questions
changed, since the model was fitted?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.arrays import plain
from calibration.drift import Drift, alarm
from calibration.label_selection import ACCEPTED_STRATA
from calibration.metrics import aurc, log_loss
from calibration.prediction_powered import Strata, powered_mean
from calibration.reliability import Comparison, comparison
from rerank.assessment.fitted_maps import pooled_over
from rerank.assessment.model import CalibratedReranker, as_queries
from rerank.assessment.pipeline import Pipeline, ReadPolicy
from rerank.assessment.predictions import predict
from rerank.data.checks import query_hash
from rerank.data.grouping import grouped, sampled_units
from rerank.data.labelled_set import LabelledSet, given_group, group_label
from rerank.data.labels import Labelled, drawn_at_random, drawn_by, judged_of, weights_of
from rerank.data.lines import Problems, records, stem
from rerank.data.records import read_number, read_text
from rerank.errors import InputError
from rerank.evaluation.baselines import baselines_of
from rerank.evaluation.measure import (
    OURS,
    Evaluation,
    Part,
    measure,
    order_quality,
    weighted_accuracy,
)
from rerank.fitting.plan import unseen
from rerank.inference.model_files import trained_on
from rerank.jobs.pipelines import pipeline_over
from rerank.process import one_blas_thread
from rerank.storage.folder import Workspace
from rerank.types import Query, metadata_name

LINE = 'expected {"query_id": ID, "confidence": 0 to 1, "ranking": [IDS, best first]}'


def grouped_as(labelled: LabelledSet, model: CalibratedReranker) -> LabelledSet:
    """The set with its queries grouped as those of the model were, unless it is grouped already."""
    regroup = model.group_by and not labelled.group_by
    return labelled.grouped_by(model.group_by) if regroup else labelled


@one_blas_thread()
def evaluate(
    model: CalibratedReranker,
    labelled: LabelledSet,
    split: str = "test",
    *,
    work: str | Path = "work",
) -> Evaluation:
    """Measure a model on a split, on the set's own corpus, which is indexed under `work` if it is
    not the model's.

    Queries that its models were trained on, or the pooled maps fitted on, are left out. `notes` of
    the result say what makes the figures too good. If queries have weights
    (`rerank.labelling.labels`), `weighted` is the estimate for all queries that they were drawn
    from, with an interval if this model drew them; all else is of these alone.

    Raises:
        InputError: no such split, no query left in it, or only some of them have a weight; or
            another search system holds none of the passages that the labels name.
        RetrieverError: that system does not answer.
    """
    model.files.check_single()
    labelled = grouped_as(labelled, model)
    in_split = labelled.split(split)
    labelled, missing = model.source.held(labelled)  # its passages tell which queries go together
    notes = [*missing]
    pipeline = pipeline_over(labelled, model, Workspace(Path(work)))
    known = frozenset[str]()
    if not labelled.lists:
        models = pipeline.model_files
        known = trained_on(*models) | pooled_over(models, pipeline.config)
    ids = unseen(labelled, in_split, known)
    if not ids:
        raise InputError(f"{labelled.name}: the models were trained on all of {split!r}")
    if left_out := len(in_split) - len(ids):
        notes.append(f"left out: {left_out} queries that a model or pooled map has seen.")
    queries = grouped(labelled, ids).select(ids)
    if fitted_here := len(ids) - len(unseen(labelled, ids, model.fitted_on)):
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
    evaluation = measure([part], pipeline.config)
    evaluation = replace(evaluation, notes=(*notes, *_judged(queries, evaluation, model)))
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


def _judged(queries: Labelled[Query], found: Evaluation, model: CalibratedReranker) -> list[str]:
    """What labels in strata of a judge's verdicts say of all questions that it has judged."""
    by_id = {q.query_id: q for q in queries.items}
    judged, right = judged_of([by_id[i] for i in found.query_ids]), found.right
    if judged is None:
        return []
    stratum, n = np.array(judged.stratum), ACCEPTED_STRATA
    parts = (
        {f"of all questions, with the judge {judged.judge}": 2 * n} if any(judged.rows[n:]) else {}
    )
    if drawn_by(queries.items, model.version):
        parts[f"of what the model accepts, with the judge {judged.judge}"] = n
    return [
        f"{what}: {powered_mean(Strata.of(right[within], stratum[within], rows)).sentence}"
        for what, many in parts.items()
        for within, rows in [(stratum < many, judged.rows[:many])]
        if within.any()
    ]


@dataclass(frozen=True, slots=True)
class MeasuredPredictions:
    """The confidence of a file of predictions, measured, and its order."""

    table: Comparison  # of one row, named as the file
    order: Mapping[str, float]  # hit1 of all queries; mrr10, ndcg10 of the answerable
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; undefined values are None."""
        return {
            "confidence": self.table.to_dict(),
            "orders": {name: plain(dict(self.order)) for name, _ in self.table.rows},
        }


def measure_predictions(
    path: Path, labelled: LabelledSet, split: str = "test", *, threshold: float = 0.7
) -> MeasuredPredictions:
    """Measure a file with a line for each query of a split, as `rerank rescore` writes it.

    A line has `query_id`, `confidence` and `ranking`: ids, or objects with `doc_id`. A query is
    right if its first passage is; one without a right passage never is. Of a passage that is named
    twice the first place counts. Lines of other queries are
    counted and left out. At `threshold` the share of accepted ones that are right is measured.

    Raises:
        InputError: no such split or no query in it; lines that cannot be read, which are listed; or
            a query without a line, or with two.
    """
    ids = labelled.split(split)
    said = read_predictions(path, ids, split)
    queries = grouped(labelled, ids).select(ids)
    order = order_quality([said[i][1] for i in ids], queries.grades)
    table = comparison(
        {stem(path): np.array([said[i][0] for i in ids])},
        order.hit1,
        groups=queries.groups.tolist(),
        units=sampled_units(queries.items).tolist(),
        threshold=threshold,
        extra={"AURC": aurc, "log loss": log_loss},
    )
    others = len(said) - len(ids)
    notes = (f"left out: {others} lines of queries that are not in {split!r}.",) if others else ()
    return MeasuredPredictions(table, order.means, notes)


def read_predictions(
    path: Path, ids: Sequence[str], split: str
) -> dict[str, tuple[float, list[str]]]:
    """The confidence and the ranking of each query of a file, which has all `ids` of the split.

    Raises:
        InputError: as `measure_predictions`.
    """
    said, problems = dict[str, tuple[float, list[str]]](), Problems()
    for where, (query_id, confidence, found) in records(path, _prediction, problems):
        if query_id in said:
            problems.add(where, f"a second line of the query {query_id!r}")
        said[query_id] = confidence, found
    problems.raise_if_any(str(path))
    if missing := [i for i in ids if i not in said]:
        raise InputError(
            f"{path}: expected a line for each of the {len(ids)} queries of {split!r}, got none "
            f"for {len(missing)}, such as {missing[0]!r}"
        )
    return said


def _prediction(row: Mapping[str, Any]) -> tuple[str, float, list[str]]:
    ranking = row.get("ranking")
    if row.get("confidence") is None or not isinstance(ranking, (list, tuple)):
        raise InputError(f"{LINE}, got the fields {', '.join(row) or 'none'}")
    confidence = read_number(row, "confidence")
    if not 0 <= confidence <= 1:
        raise InputError(f"'confidence' should be from 0 to 1, got {confidence:g}")
    named = [one.get("doc_id") if isinstance(one, Mapping) else one for one in ranking]
    found = [one for one in named if isinstance(one, str)]
    if len(found) < len(named):
        raise InputError(f"{LINE}, got a passage without an id in 'ranking'")
    return read_text(row, "query_id"), confidence, list(dict.fromkeys(found))


def detect_drift(
    model: CalibratedReranker,
    queries: Sequence[Query | str] | Labelled[Query],
    *,
    pipeline: Pipeline | None = None,
    level: float = 0.01,
) -> Drift:
    """Which features of the queries' rankings have shifted, and whether that is an alarm; without
    labels.

    Without any shift, the chance of an alarm is at most `level`. Queries of one group, and queries
    with the same text, are not independent. A group is named by the metadata that the model's
    labelled queries were grouped by (`--group-by`), else by `metadata.group`, or by the labelled
    set. `pipeline` searches another corpus than the model's. Those without candidates are left out.

    Raises:
        InputError: no query has a candidate, the features are of another version, `level` is not in
            (0, 1), or a query is in another mode than those fitted on.
    """
    if not 0 < level < 1:
        raise InputError(f"the level is a chance between 0 and 1, got {level:g}; 0.01 is usual")
    maps, used = model.maps.main, pipeline or model.pipeline
    if model.sketch.names != tuple(maps.features.ranking):
        raise InputError(f"{model.folder}: its sketch is of other features; calibrate it again")
    if isinstance(queries, Labelled):
        to_compare, groups = list(queries.items), queries.groups.tolist()
    else:
        to_compare = as_queries(queries)
        groups = [given_group(q) or query_hash(q.text) for q in to_compare]
    if model.group_by:
        named = [metadata_name(q.metadata, model.group_by) for q in to_compare]
        groups = [group_label(n) if n else g for n, g in zip(named, groups, strict=True)]
    other = next((q for q in to_compare if model.mode_of(q) != model.maps.main_mode), None)
    if other is not None:
        raise InputError(
            f"the model was fitted on queries in {model.maps.main_mode} mode, so only these can be "
            f"compared with them; {other.text!r:.80} is in {model.mode_of(other)} mode"
        )
    scored = used.run(to_compare, maps.policy, label="scoring candidates")
    found = [i for i, s in enumerate(scored) if len(s)]
    if not found:
        raise InputError("no passage was found for any query, so there is nothing to compare")
    predicted = predict([scored[i] for i in found], maps, used.config)
    return alarm(model.sketch, predicted.features, level=level, groups=[groups[i] for i in found])

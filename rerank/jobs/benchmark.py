"""Measure a model, a reranker or predictions, before and after a calibration on some labels."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.arrays import log_odds, sigmoid
from rerank.assessment.fitted_maps import FittedMaps, pooled_for
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline, ReadPolicy
from rerank.assessment.predictions import CALIBRATED_FROM, certified, predict
from rerank.assessment.ranking import read, reorder
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Item, Labelled
from rerank.data.lines import stem
from rerank.errors import InputError, optional
from rerank.evaluation.baselines import HEURISTICS, NEED_SCORES, best_logit, heuristic_confidences
from rerank.evaluation.measure import OURS
from rerank.fitting.fit import fit
from rerank.fitting.passage_maps import limit_labelled
from rerank.fitting.plan import Plan, plan, unseen
from rerank.fitting.scored_plan import (
    ScoredPlan,
    add_copies,
    has_enough_unanswerable,
    score_lists,
    score_planned,
)
from rerank.jobs.automatic import with_language
from rerank.jobs.calibrate import refused_by
from rerank.jobs.evaluate import grouped_as, read_predictions
from rerank.jobs.pipelines import CandidateSource, find_models, open_candidate_source, pipeline_over
from rerank.process import one_blas_thread
from rerank.report.benchmark import Answers, Asked, Row, Way, measured_rows
from rerank.storage.folder import Workspace
from rerank.types import Floats, Ints, Ranking, Scored

AS_IT_IS, POOLED = "the model as it is", "pooled maps"
LENT = 0.45  # share of the questions that lend labels, of a set without another split
EVERY = 0.9  # share of unanswerable questions that no set reaches: each answered one is copied


@one_blas_thread()
def benchmark(
    labelled: LabelledSet,
    model: CalibratedReranker | Config | None,
    split: str = "test",
    *,
    labels: Sequence[int | None] = (0, 50, 100, 300, None),
    draws: int = 3,
    predictions: Sequence[Path] = (),
    work: str | Path = "work",
) -> tuple[list[Row], list[str]]:
    """Measure on a split, with each number of `labels` (None: all), drawn `draws` times at random.

    The other splits lend labels. If there is none, 45% of the questions do, by whole groups, and
    the others are measured. Without labels the `model` is measured as it is, and so are the pooled
    maps of its networks and the reranker's own score; with labels, what `calibrate` fits on these
    by the configuration of the model. A `Config` is measured likewise: any reranker, or the last
    stage of lists that come with their scores. Files of `predictions` are measured as they are. If
    they have lines of the questions that lend labels, so is Platt's scaling of their confidence;
    without a model, that of the first file is called calibrated. Beside the rows are notes.

    Raises:
        InputError: as `rerank.calibrate` and `measure_predictions`; a number of labels on which
            nothing is calibrated; two files of one name; or a folder of two models.
    """
    for n in labels:
        if n is not None and 0 != n < CALIBRATED_FROM:
            raise InputError(f"expected 0 labels, {CALIBRATED_FROM} or more, or all; got {n}")
    names = [*map(stem, predictions), OURS, POOLED, AS_IT_IS]
    if taken := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"two rows would be called {taken[0]!r}; give the files other names")
    source, maps, seen = None, dict[str, FittedMaps](), frozenset[str]()
    if isinstance(model, CalibratedReranker):
        source = _of_model(labelled, model, Workspace(Path(work)))
        maps, seen = {AS_IT_IS: model.maps[labelled.mode]}, model.fitted_on
    elif model:
        config = with_language(model, labelled.corpus.values(), encodes=not labelled.lists)
        models, config = (None, config) if labelled.lists else find_models(config)
        how: Any = {"index": None, "retriever": None}
        source = open_candidate_source(labelled, config, models, Workspace(Path(work)), **how)
    pipeline, pooled = (source.open(), source.pooled) if source else (None, None)
    labelled, notes = (source.labelled, [*source.notes]) if source else (labelled, [])
    config = pipeline.config if pipeline else Config()
    others = [i for name, ids in labelled.splits.items() if name != split for i in ids]
    splits = {"test": labelled.split(split), **({"train": tuple(others)} if others else {})}
    planned = plan(
        replace(labelled, splits=splits),
        trained_hashes=source.trained_on if source else frozenset(),
        max_queries=None,
        seed=config.seed,
        pooled_marks=pooled.marks if pooled else frozenset(),
    )
    if planned.cross_fitted:
        fit, report = halves(planned.fit, config.seed)
        planned = replace(planned, fit=fit, report=report, report_split=split)
    ids = [query.query_id for query in planned.report.items]
    if fitted_here := len(ids) - len(unseen(labelled, ids, seen)):
        notes.append(f"warning: the model was fitted on {fitted_here} of the measured questions.")
    none = np.zeros(len(ids), dtype=np.bool_)
    asked, ways = Asked(planned.report, none, none, config.thresholds.advisory), list[Way]()
    if pipeline:
        maps |= {POOLED: pooled.maps["search"]} if pooled else {}
        asked, ways = by_networks(pipeline, planned, maps)
    for number, path in enumerate(predictions):
        lines = read_predictions(path, ids, split)
        (p, orders), (of_lent, lent_orders) = (
            zip(*(lines.get(q.query_id, (np.nan, [])) for q in some.items), strict=True)
            for some in (asked.queries, planned.fit)
        )
        if np.isnan(of_lent).any():
            notes.append(f"{path}: not calibrated: it lacks lines of questions that lend labels.")
        right = Answers(lent_orders, np.array(of_lent)).right(planned.fit)
        said, name = Answers(orders, np.array(p)), stem(path)
        scaled = f"{name}, scaled" if pipeline or number else OURS
        ways.append(scaling(name, scaled, said, log_odds(p), log_odds(of_lent), right))
    lent = len(planned.fit)
    sizes, how = [lent if n is None else n for n in labels], {"draws": draws, "seed": config.seed}
    return measured_rows(labelled.name, asked, ways, lent=lent, labels=sizes, **how), notes


def _of_model(labelled: LabelledSet, model: CalibratedReranker, work: Workspace) -> CandidateSource:
    model.files.check_single()
    labelled, notes = model.source.held(grouped_as(labelled, model))
    pipeline, pooled = pipeline_over(labelled, model, work), None
    models = pipeline.model_files if pipeline.models else None
    if models and not pipeline.source.kind.stages:
        pooled = pooled_for(*models, pipeline.config)
    return CandidateSource(labelled, {}, lambda: pipeline, models, pooled, notes)


def halves(labelled: Labelled[Item], seed: int) -> tuple[Labelled[Item], Labelled[Item]]:
    """The queries that lend labels and those to measure; no group is in both."""
    groups = sorted(set(labelled.groups.tolist()))
    random.Random(seed).shuffle(groups)
    sizes = np.cumsum([int((labelled.groups == group).sum()) for group in groups])
    chosen = np.isin(labelled.groups, groups[: int(np.searchsorted(sizes, LENT * sizes[-1]))])
    return labelled.where(chosen), labelled.where(~chosen)


def by_networks(
    pipeline: Pipeline, planned: Plan, maps: Mapping[str, FittedMaps]
) -> tuple[Asked, list[Way]]:
    """The questions, with copies; what these maps, the last score and fits on labels say."""
    config, lists = pipeline.config, not pipeline.source.scores_passages
    lent, found = (
        queries.with_items(pipeline.retrieve(queries.items, label=f"finding candidates to {use}"))
        for queries, use in ((planned.fit, "learn from"), (planned.report, "measure"))
    )
    if not lists:
        found = add_copies(pipeline, found, EVERY)

    def scored(rows: Ints) -> ScoredPlan:
        chosen = np.isin(np.arange(len(lent)), rows)
        if lists:
            return score_lists(pipeline, replace(planned, fit=planned.fit.where(chosen)))
        to_fit, cutoff = lent.where(chosen), pipeline.source.cutoff
        if not has_enough_unanswerable(to_fit.grades):
            to_fit = add_copies(pipeline, to_fit)
        return score_planned(pipeline, to_fit, found, pooled=maps.get(POOLED), cutoff=cutoff)

    whole = scored(np.arange(len(lent)))
    known, last = ([by_logit(s) for s in part.items] for part in (whole.to_fit, whole.to_report))
    name = NEED_SCORES[lists]
    own = Answers(
        [r.doc_ids for r in last],
        heuristic_confidences(HEURISTICS[name], last),
        relevance=None if lists else [sigmoid(r.logits) for r in last],
    )
    scores, of_lent = (np.array([best_logit(r) for r in part]) for part in (last, known))
    right = Answers([r.doc_ids for r in known], of_lent).right(whole.to_fit)
    own_score = scaling(name, f"{name}, scaled", own, scores, of_lent, right)

    def ours(rows: Ints) -> Iterator[tuple[str, Answers]]:
        if len(rows):
            drawn = scored(rows)
            fitted = refused_by(planned, fit(drawn, config, to_keep=True), main=True)
            yield OURS, by_maps(drawn.to_report, fitted.maps, config)
            return
        for called, one in maps.items():
            items = pipeline.score_by(found.items, ReadPolicy(one.policy.prior))
            yield called, by_maps(found.with_items(items), one, config)

    return Asked.of(found, config), [ours, own_score]


def by_logit(scored: Scored) -> Ranking:
    """The ranking by the last stage's score alone."""
    return reorder(read(scored), rank_by="logit")


def by_maps(scored: Labelled[Scored], maps: FittedMaps, config: Config) -> Answers:
    """What the maps say, with what their certificates promise; of pooled ones nothing."""
    said = predict(limit_labelled(scored, maps.policy.cutoff).items, maps, config)
    enough, context = said.sufficiency[:, config.sufficiency_k - 1], maps.context_certificate
    return Answers(
        [r.doc_ids for r in said.rankings],
        said.confidence,
        promised=certified(said, maps, config.thresholds) if maps.calibrated else None,
        contexts=np.array([context.promises(p) for p in enough]) if context else None,
        relevance=said.relevance,
    )


def scaling(
    name: str, scaled: str, said: Answers, scores: Floats, known: Floats, right: Floats
) -> Way:
    """Answers as they come; with labels, Platt's scaling of their scores (n,) is the confidence.

    It is fitted on `known` scores and labels `right` of those that lend labels, if none is NaN.
    """
    with optional():
        from calibration.score_fitting import fit_platt

    def way(rows: Ints) -> Iterator[tuple[str, Answers]]:
        if not len(rows):
            yield name, said
        elif not np.isnan(known).any():
            fitted, there = fit_platt(known[rows], right[rows]), ~np.isnan(scores)
            confidence = np.full(len(scores), np.nan)
            confidence[there] = fitted.predict(scores[there])
            yield scaled, replace(said, confidence=confidence, relevance=None)

    return way

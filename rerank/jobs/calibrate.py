"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

No query is reported on by a fit that saw it or its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.arrays import group_codes
from calibration.metrics.intervals import grouped_standard_error
from rerank.assessment.fitted_maps import maps_to_dict
from rerank.assessment.model_folder import MODEL_KIND, REPORT, ModelContents, write_model
from rerank.assessment.pipeline import Models
from rerank.assessment.ranking import reorder
from rerank.assessment.sources.source import Source
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import hits
from rerank.errors import FolderError, InputError, check_one_of
from rerank.evaluation.baselines import baselines_of
from rerank.evaluation.measure import Part, measure
from rerank.fitting.certificates import (
    CUT_FROM_SEARCH,
    NOT_AT_RANDOM,
    TRAINED_ON_DOCUMENTS,
    refuse_certificates,
)
from rerank.fitting.fit import Fitted, FittedFold, check_both_outcomes, fit_folds, fit_modes
from rerank.fitting.passage_maps import fit_rankings, read_labelled
from rerank.fitting.plan import Plan, check_corpus, plan
from rerank.fitting.scored_plan import ScoredPlan, missed_share, score_modes
from rerank.inference.engine import NETWORKS, check_exportable, manifest_entry, write_exported
from rerank.jobs.automatic import with_language
from rerank.jobs.pipelines import find_models, open_candidate_source
from rerank.jobs.track import track_if_installed
from rerank.process import one_blas_thread
from rerank.progress import progress
from rerank.protocols import EmbedderChoice, ScorerChoice
from rerank.report.calibration import report_figures, report_pictures, report_sections
from rerank.report.measured import make_report
from rerank.report.sections import as_page, as_text
from rerank.storage.folder import Workspace, is_made_from, output_folder, read_manifest
from rerank.tracking.registry import name_of
from rerank.types import INSTRUCTION, Mode, main_mode, metadata_name

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun

READ_THEM = f"--segment-by {INSTRUCTION} reads them, and measures each"
NOT_DERIVED = {"updated": None, "recalibrated": None}  # of a manifest: no other job changed it


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """The model folder, its report, and its run in MLflow (None without MLflow)."""

    folder: Path
    report: str  # the text that the model folder keeps as report.txt
    run: TrackedRun | None
    made: bool  # by this call; False if it existed already
    notes: tuple[str, ...] = ()  # what was not done, and what to do


@one_blas_thread()
def calibrate(
    labelled: LabelledSet,
    out: str | Path,
    config: Config | None = None,
    *,
    work: str | Path = "work",
    max_queries: int | None = None,
    overwrite: bool = False,
    index: Path | None = None,
    name: str = "",
    self_contained: bool = False,
    retriever: str | Path | None = None,
    reranker: ScorerChoice | None = None,
    encoder: EmbedderChoice | None = None,
) -> CalibrationRun:
    """Run the whole job and write the model folder `out`, whole or not at all.

    Indexes and scores are kept under `work`; after an interruption, the same call resumes. If `out`
    holds the model of the same data, configuration and weights, it is not made again, but sent to
    MLflow if it has no run yet. `index` is a folder that `rerank data index` wrote for this corpus.
    With `self_contained` the folder has its networks, exported: it then runs without the weights.

    `retriever` is the TOML file of another search system (`rerank.systems`) that holds the labelled
    passages. This job and the model search it instead of an index.

    `reranker` and `encoder` are those of the configuration: a name, an object with the protocol of
    `rerank.protocols`, or a function, such as `lambda query, texts: [...]`. `rerank.load` then
    takes the object or function again.

    If the lists come with scores (`labelled.lists`), no index is built and no model runs. The
    resulting model assesses only such lists.

    `name` is that of the MLflow experiment and of the registered model, which gets a new version;
    by default it is made from the name of the set. Without MLflow, `notes` of the result say so.

    Raises:
        RetrieverError: the search system does not answer.
        InputError: labels, models, an index or options that cannot be used; the message says which.
        TrackingError: the model is written, but MLflow did not accept its record; `track_model`
            sends it later.
        FolderError: `out` is another model, and `overwrite` is False; or another job writes it now,
            or nothing can be written there.
    """
    if not isinstance(labelled, LabelledSet):
        raise InputError(
            f"expected a labelled set, got {labelled!r:.80}; read a folder with "
            "rerank.LabelledSet.read(FOLDER)"
        )
    out, workspace, config = Path(out), Workspace(Path(work)), config or Config()
    config = replace(
        config,
        reranker=config.reranker if reranker is None else reranker,
        encoder=config.encoder if encoder is None else encoder,
    )
    config = with_language(config, labelled.corpus.values(), encodes=not labelled.lists)
    _check_config(config)
    models = None
    if config.precision == "auto" and not overwrite:
        config = replace(config, precision=_kept(out, "precision") or config.precision)
    if not labelled.lists:  # their scores came with them
        models, config = find_models(config)
    instructed = sum(bool(query.instruction) for query in labelled.queries.values())
    if models and config.segment_by == INSTRUCTION:  # refused now, not after the index
        Models.open(config, models).reranker.with_instruction(INSTRUCTION)
    source = open_candidate_source(
        labelled, config, models, workspace, index=index, retriever=retriever
    )
    networks: Mapping[str, Any] = {}
    write_networks = None
    if self_contained and models:
        check_exportable(models, config)  # fail now, not after the fit
        networks = {NETWORKS: manifest_entry(config.precision)}
        write_networks = partial(write_exported, models=models, config=config)
    labelled = source.labelled
    made_from: dict[str, Any] = {
        "name": name_of(name, labelled.name),
        "config": config.to_dict(),
        "dataset": labelled.described(),
        "max_queries": max_queries,
        **source.made_from,
        "corpus_digest": labelled.corpus_digest(),
    }
    automatic = config.rank_by == "auto"
    as_made = _with_order(made_from, _kept(out, "rank_by")) if automatic else made_from
    if not overwrite and is_made_from(out, {**as_made, **networks, **NOT_DERIVED}):
        text = (out / REPORT).read_text(encoding="utf-8")
        run, notes = track_if_installed(out, work=workspace)
        return CalibrationRun(out, text, run, made=False, notes=(*source.notes, *notes))
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        check_corpus(labelled)
        planned = plan(
            labelled,
            trained_hashes=source.trained_on,
            max_queries=max_queries,
            seed=config.seed,
            pooled_marks=source.pooled.marks if source.pooled else frozenset(),
        )
        key = config.segment_by
        if key and not any(metadata_name(q.metadata, key) for q in planned.fit.items):
            raise InputError(
                f"none of the queries has the metadata {key!r} of `segment_by` (--segment-by)"
            )
        missed = missed_share(planned.fit.grades, config.expected_unanswerable)
        pipeline = source.open()
        scored = score_modes(pipeline, planned, source.pooled.maps if source.pooled else {})
        if automatic:
            config = replace(config, rank_by=choose_order(scored[main_mode(scored)], config))
            made_from = _with_order(made_from, config.rank_by)
        contents = _fit_and_measure(planned, scored, pipeline.source, made_from, config)
        write_model(out, contents, overwrite=overwrite, write_exported=write_networks)
        run, notes = track_if_installed(out, work=workspace)
    unread = ""
    if instructed and config.segment_by != INSTRUCTION:
        unread = f"{instructed} queries have an instruction that is not read; {READ_THEM}"
    warnings = (unread, planned.warning, missed)
    notes = (*source.notes, *(f"warning: {text}" for text in warnings if text), *notes)
    return CalibrationRun(out, contents.report, run, made=True, notes=notes)


def _with_order(made_from: Mapping[str, Any], rank_by: str) -> dict[str, Any]:
    return {**made_from, "config": {**made_from["config"], "rank_by": rank_by}, "order": "auto"}


def _kept(out: Path, option: str) -> Any:
    """An option of the model that is at `out`; "" if there is none."""
    try:
        return read_manifest(out)["config"][option]
    except (FolderError, KeyError, TypeError):
        return ""


def _check_config(config: Config) -> None:
    """Refuse an unknown calibrator; and targets 0 and 1, which always or never hold."""
    from calibration.score_fitting import SCORE_FITS

    check_one_of("`calibrator` (--calibrator)", config.calibrator, ("auto", *SCORE_FITS))
    for name in ("medium", "sufficient"):
        if not 0 < getattr(config.thresholds, name) < 1:
            raise InputError(
                f"`{name}` (--{name}) should be above 0 and below 1 to calibrate, got "
                f"{getattr(config.thresholds, name):g}"
            )


def _fit_and_measure(
    planned: Plan,
    scored: Mapping[Mode, ScoredPlan],
    source: Source,
    made_from: Mapping[str, Any],
    config: Config,
) -> ModelContents:
    main = main_mode(scored)
    with progress(4, "fitting, measuring, drawing", unit="step") as bar:
        fits = fit_modes(scored, config)
        fits = {mode: refused_by(planned, fits[mode], main=mode == main) for mode in fits}
        check_both_outcomes(fits[main].right[~fits[main].copies], made_from["dataset"]["name"])
        bar.update()
        folds = {mode: [FittedFold(scored[mode].to_report, fits[mode])] for mode in scored}
        if planned.cross_fitted:
            folds = fit_folds(scored, config)
        bar.update()
        beside = baselines_of(source.kind)
        evaluations = {}
        for mode in scored:
            parts = []
            for fold in folds[mode]:  # by the fit that has not seen it
                compared = beside | {"temperature": fold.fitted.scaled_logit}
                parts.append(Part(fold.scored, fold.fitted.maps, compared if mode == main else {}))
            evaluations[mode] = measure(parts, config)
        bar.update()
        report = make_report(
            planned,
            fits[main],
            evaluations[main],
            config,
            fits=[fold.fitted for fold in folds[main]],
            rerank=evaluations.get("rerank"),
            made_from=made_from,
        )
        pictures = report_pictures(report_figures(report))
        sections = report_sections(report, pictures)
        title = f"{report.name}: is the confidence calibrated?"
        contents = ModelContents(
            manifest={
                **made_from,
                "queries": planned.counts(),
                "calibrator": {"name": fits[main].calibrator, "reason": fits[main].reason},
            },
            maps=maps_to_dict({mode: fitted.maps for mode, fitted in fits.items()}),
            sketch=fits[main].sketch.to_dict(),
            measured=report.to_dict(),
            page=as_page(title, planned.reported, sections),
            report=as_text(sections),
            pictures={name: picture.captioned for name, picture in pictures.items()},
            fitted_on=planned.fitted_on,
            index=source.folder,
        )
        bar.update()
    return contents


def refused_by(planned: Plan, fitted: Fitted, *, main: bool) -> Fitted:
    """The fit of a mode, certifying nothing where the plan gives a reason, or in another mode."""
    reasons = {
        TRAINED_ON_DOCUMENTS: main and planned.beside_training,
        NOT_AT_RANDOM: main and not planned.fitted_at_random,
        CUT_FROM_SEARCH: not main,
    }
    refusal = " ".join(reason for reason, holds in reasons.items() if holds)
    return replace(fitted, maps=refuse_certificates(fitted.maps, refusal)) if refusal else fitted


ORDERS = ("dense", "fused", "logit", "relevance")  # simple to complex


def choose_order(scored_plan: ScoredPlan, config: Config) -> str:
    """The simplest of `ORDERS` whose hit@1 is within one standard error of the best.

    The error is that of the difference, by query group. The order by relevance is that of maps that
    have not seen the query's group.
    """
    unordered = read_labelled(scored_plan.to_fit, scored_plan.policy.cutoff)
    pooled = scored_plan.pooled.score if scored_plan.pooled else None
    _, ordered = fit_rankings(unordered, replace(config, rank_by="relevance"), pooled)
    groups = group_codes(ordered.groups, len(ordered))
    right = {
        name: hits(ordered.with_items([reorder(r, rank_by=name) for r in ordered.items]))[:, 0]
        for name in ORDERS
        if name != "dense" or not scored_plan.kind.stages
    }
    best = max(right, key=lambda name: right[name].mean())  # of equal ones the simpler
    for name, of_order in right.items():
        lost = (right[best] - of_order).astype(np.float64)
        if lost.mean() <= grouped_standard_error(lost, groups):
            return name
    return best

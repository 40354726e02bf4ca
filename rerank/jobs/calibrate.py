"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

Index, rank, fit, measure, save, track. No query is reported on by a fit that saw it or its group.
Queries that a model was trained on are left out: its scores on them are too good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.assessment.fitted_maps import maps_to_dict
from rerank.assessment.model_folder import MODEL_KIND, REPORT, ModelContents, write_model
from rerank.assessment.sources.source import Source
from rerank.config import Config, Thresholds
from rerank.data.grouping import marks_of
from rerank.data.labelled_set import LabelledSet
from rerank.data.weights import drawn_at_random
from rerank.errors import InputError, nearest
from rerank.evaluation.baselines import Heuristic, baselines_of
from rerank.evaluation.measure import Evaluation, Part, measure
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.label_checks import check_both_outcomes, check_corpus
from rerank.fitting.nested_cross_fitting import FittedFold, fit_folds
from rerank.fitting.plan import Plan, plan
from rerank.fitting.refused_certificates import (
    CUT_FROM_SEARCH,
    NOT_AT_RANDOM,
    TRAINED_ON_DOCUMENTS,
    refuse_certificates,
)
from rerank.fitting.scored_plan import ScoredPlan, score_modes
from rerank.fitting.unanswerable import missed_share
from rerank.inference.exported_models import (
    NETWORKS,
    check_exportable,
    manifest_entry,
    write_exported,
)
from rerank.jobs.candidate_sources import open_candidate_source
from rerank.jobs.pipelines import find_models
from rerank.jobs.track import track_if_installed
from rerank.progress import progress
from rerank.protocols import EmbedderChoice, ScorerChoice
from rerank.report.calibration import report_figures, report_pictures, report_sections
from rerank.report.report import make_report
from rerank.report.sections import as_page, as_text
from rerank.storage.folder import is_made_from
from rerank.storage.locks import output_folder
from rerank.tracking.registry import name_of
from rerank.types import Mode, main_mode, metadata_name
from rerank.workspace import Workspace

if TYPE_CHECKING:
    from rerank.tracking.records import TrackedRun

NOT_DERIVED = {"updated": None, "recalibrated": None}  # of a manifest: no other job changed it


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """The model folder, its report, and its run in MLflow (None without MLflow)."""

    folder: Path
    report: str  # the text that the model folder keeps as report.txt
    run: TrackedRun | None
    made: bool  # by this call; False if it existed already
    notes: tuple[str, ...] = ()  # what was not done, and what to do


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

    Indexes and cross-encoder scores are kept under `work`; after an interruption, the same call
    resumes from them. If `out` already holds the model of the same data, configuration and weights,
    it is not rebuilt; it is sent to MLflow if it has no run yet. `index` is a folder that
    `rerank index` wrote for this corpus. With `self_contained` the folder includes its networks,
    exported: it then runs without the weights.

    `retriever` is the TOML file of another search system (`rerank.retrieval.systems`) that holds
    the labelled passages. This job and the model search it instead of an index.

    `reranker` and `encoder` are those of the configuration: a name, an object with the protocol of
    `rerank.protocols`, or a function, such as `lambda query, texts: [...]`. `rerank.load` then
    takes the object or function again.

    If the lists come with scores (`labelled.lists`), no index is built and no model runs. The
    resulting model assesses only such lists.

    `name` is the name of the MLflow experiment and of the registered model, which gets a new
    version; by default it is made from the name of the set. Without MLflow the model is not
    tracked, and `notes` of the result say so.

    Raises:
        RetrieverError: the search system does not answer.
        InputError: an unknown calibrator, too few queries, a corpus of one passage, labels that are
            all right or all wrong, a model that does not exist, an index of another corpus, encoder
            or configuration, an option that does not apply to lists, or a name that MLflow cannot
            hold.
        TrackingError: the model is written, but MLflow did not accept its record; `track_model`
            sends it later.
        FolderError: `out` exists, is another model, and `overwrite` is False; or another job writes
            it now, or nothing can be written there.
    """
    out, workspace, config = Path(out), Workspace(Path(work)), config or Config()
    config = replace(
        config,
        reranker=config.reranker if reranker is None else reranker,
        encoder=config.encoder if encoder is None else encoder,
    )
    _check_calibrator(config.calibrator)
    _check_targets(config.thresholds)
    models = None
    if not labelled.lists:  # their scores came with them
        models, config = find_models(config)
    source = open_candidate_source(
        labelled, config, models, workspace, index=index, retriever=retriever
    )
    networks: Mapping[str, Any] = {}
    write_networks = None
    if self_contained and models:
        check_exportable(models, config.precision)  # fail now, not after the fit
        networks = {NETWORKS: manifest_entry(config.precision)}
        write_networks = partial(write_exported, models=models, precision=config.precision)
    labelled = source.labelled
    check_corpus(labelled)
    made_from: dict[str, Any] = {
        "name": name_of(name, labelled.name),
        "config": config.to_dict(),
        "dataset": labelled.described(),
        "max_queries": max_queries,
        **source.made_from,
        "corpus_digest": labelled.corpus_digest(),
    }
    if not overwrite and is_made_from(out, {**made_from, **networks, **NOT_DERIVED}):
        text = (out / REPORT).read_text(encoding="utf-8")
        run, notes = track_if_installed(out, work=workspace)
        return CalibrationRun(out, text, run, made=False, notes=(*source.notes, *notes))
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        planned = plan(
            labelled, trained_hashes=source.trained_on, max_queries=max_queries, seed=config.seed
        )
        _check_segments(planned, config.segment_by)
        pipeline = source.open()
        scored = score_modes(pipeline, planned, source.pooled.maps if source.pooled else {})
        contents = _fit_and_measure(planned, scored, pipeline.source, made_from, config)
        write_model(out, contents, overwrite=overwrite, write_exported=write_networks)
        run, notes = track_if_installed(out, work=workspace)
    warnings = (planned.warning, missed_share(planned.fit.grades, config.expected_unanswerable))
    notes = (*source.notes, *(f"warning: {text}" for text in warnings if text), *notes)
    return CalibrationRun(out, contents.report, run, made=True, notes=notes)


def _check_calibrator(name: str) -> None:
    from calibration.score_fitting import SCORE_FITS

    names = ("auto", *SCORE_FITS)
    if name not in names:
        raise InputError(
            f"`calibrator` (--calibrator) should be one of {', '.join(names)}, got {name!r}"
            f"{nearest(name, names)}"
        )


def _check_segments(planned: Plan, segment_by: str) -> None:
    """Refuse metadata that no query to fit on has."""
    if segment_by and not any(metadata_name(q.metadata, segment_by) for q in planned.fit.items):
        raise InputError(
            f"none of the queries has the metadata {segment_by!r} of `segment_by` (--segment-by)"
        )


def _check_targets(thresholds: Thresholds) -> None:
    """Refuse targets 0 and 1: a share of 0 always holds, and no sample shows 1."""
    for name in ("medium", "sufficient"):
        if not 0 < getattr(thresholds, name) < 1:
            raise InputError(
                f"`{name}` (--{name}) should be above 0 and below 1 to calibrate, got "
                f"{getattr(thresholds, name):g}"
            )


def _fit_and_measure(
    planned: Plan,
    scored: Mapping[Mode, ScoredPlan],
    source: Source,
    made_from: Mapping[str, Any],
    config: Config,
) -> ModelContents:
    """The maps of each mode, what was measured of them, and the report with its pictures.

    Raises:
        InputError: the labels are all right or all wrong.
    """
    main = main_mode(scored)
    with progress(4, "fitting, measuring, drawing", unit="step") as bar:
        fits = _fit_modes(planned, scored, config)
        check_both_outcomes(fits[main].right[~fits[main].copies], made_from["dataset"]["name"])
        bar.update()
        folds = {mode: [FittedFold(scored[mode].to_report, fits[mode])] for mode in scored}
        if planned.cross_fitted:
            folds = fit_folds(scored, config)
        bar.update()
        evaluations = _measure_modes(folds, baselines_of(source.kind), config)
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
            report=as_text(sections),
            page=as_page(title, planned.reported, sections),
            pictures={name: picture.captioned for name, picture in pictures.items()},
            fitted_on=marks_of(planned.fit.items),
            index=source.folder,
        )
        bar.update()
    return contents


def _fit_modes(
    planned: Plan, scored: Mapping[Mode, ScoredPlan], config: Config
) -> dict[Mode, Fitted]:
    """The fit of each mode; only the main mode can certify something."""
    main = main_mode(scored)
    reasons = {
        TRAINED_ON_DOCUMENTS: planned.beside_training,
        NOT_AT_RANDOM: not drawn_at_random(planned.fit.items),
    }
    of_main = " ".join(reason for reason, holds in reasons.items() if holds)
    fits: dict[Mode, Fitted] = {}
    for mode, scored_plan in scored.items():
        fits[mode] = fit(scored_plan, config, to_keep=mode == main)
        if refusal := of_main if mode == main else CUT_FROM_SEARCH:
            fits[mode] = replace(fits[mode], maps=refuse_certificates(fits[mode].maps, refusal))
    return fits


def _measure_modes(
    folds: Mapping[Mode, Sequence[FittedFold]],
    baselines: Mapping[str, Heuristic],
    config: Config,
) -> dict[Mode, Evaluation]:
    """The measurements of each mode, of every fold by the fit that has not seen it.

    The main mode is compared with the baselines.
    """
    main = main_mode(folds)
    return {
        mode: measure(
            [
                Part(
                    scored,
                    fitted.maps,
                    {**baselines, "temperature": fitted.scaled_logit} if mode == main else {},
                )
                for scored, fitted in folds_of_mode
            ],
            config,
        )
        for mode, folds_of_mode in folds.items()
    }

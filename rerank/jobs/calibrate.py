"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

Index, rank, fit, measure, save, track. No query is reported on by a fit that saw it or its
group, and queries that the cross-encoder was trained on are left out: on them its logits flatter
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.assessment.fitted_maps import FittedMaps, maps_to_dict
from rerank.assessment.model_folder import (
    MODEL_KIND,
    REPORT,
    ModelContents,
    fingerprints,
    write_model,
)
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.pooled_maps import PooledMaps, pooled_for
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.assessment.relevance import INPUTS
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.text import query_hash
from rerank.errors import InputError, nearest
from rerank.evaluation.baselines import HEURISTICS
from rerank.evaluation.evaluate import Part, measure_parts
from rerank.fitting.cross_fitted import fold_fits, fold_policies, held_out
from rerank.fitting.fit import fit
from rerank.fitting.label_checks import (
    BESIDE_TRAINING,
    NO_LISTS,
    refuse_one_outcome,
    refuse_one_passage,
    without_promises,
)
from rerank.fitting.plan import Plan, plan
from rerank.fitting.rankings import rerank_rankings, search_rankings
from rerank.fitting.unanswerable import mixture
from rerank.inference.model_files import lasting_name, resolve, trained_on
from rerank.inference.networks import NETWORKS, ROLES, described, exported, write_networks
from rerank.jobs.pipelines import open_pipeline
from rerank.jobs.track import track_if_installed
from rerank.progress import progress
from rerank.report.page import report_figures, report_page, report_pictures
from rerank.report.report import make_report, report_text
from rerank.retrieval.index import LAYOUT
from rerank.storage.folder import is_made_from
from rerank.storage.locks import output_folder
from rerank.tracking.registry import name_of
from rerank.types import Mode
from rerank.workspace import Workspace

if TYPE_CHECKING:
    from rerank.tracking.runs import TrackedRun


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the model is, what was measured, and MLflow's run of it: None without MLflow."""

    folder: Path
    report: str  # the text that the model folder keeps as report.txt
    run: TrackedRun | None
    made: bool  # by this call; else it was there already
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
) -> Outcome:
    """Run the whole job and write the model folder `out`, whole or not at all.

    Indexes and cross-encoder scores are kept under `work`: the same call, after an interruption,
    goes on from them. Where `out` already is the model of this very data, configuration and
    weights, it is not made again, but sent to MLflow if no run of it is known. `index` is a folder
    that `rerank index` wrote of this very corpus. With `self_contained` the folder carries its
    networks, exported: it then runs without the weights.

    `name` is that of MLflow's experiment, and of the registered model, of which this is a new
    version; by default it is made from the name of the set. Without MLflow the model is not
    tracked, and `notes` of the result say so.

    Raises:
        InputError: an unknown calibrator, too few queries, one passage, labels that are all right
            or all wrong, a model that does not exist, an index of something else, or a name that
            MLflow cannot hold.
        TrackingError: the model is written, and MLflow did not take its record; `track_model`
            sends it later.
        FolderError: `out` exists, is another model, and `overwrite` is False; or another job
            writes it now, or nothing can be written there.
    """
    out, workspace, config = Path(out), Workspace(Path(work)), config or Config()
    _refuse_unknown_calibrator(config.calibrator)
    config = replace(
        config, encoder=lasting_name(config.encoder), reranker=lasting_name(config.reranker)
    )
    encoder, reranker = resolve(config.encoder), resolve(config.reranker)
    pooled = pooled_for(encoder, reranker, config)
    made_from: dict[str, Any] = {
        "name": name_of(name, labelled.name),
        "config": config.to_dict(),
        "fingerprints": fingerprints(encoder, reranker, config),
        "dataset": labelled.described(),
        "max_queries": max_queries,
        "fitted_around": pooled.described() if pooled else None,
        "inputs": {
            "passage_features": list(PASSAGE_FEATURES),
            "ranking_features": list(RANKING_FEATURES),
            "hazard": list(INPUTS),
            "index": LAYOUT,
        },
    }
    networks, carry = {}, None
    if self_contained:
        for role, files in zip(ROLES, (encoder, reranker), strict=True):
            exported(files, role, config.precision)  # if it cannot be, better known now
        networks = {NETWORKS: described(config.precision)}
        carry = partial(write_networks, models=(encoder, reranker), precision=config.precision)
    if not overwrite and is_made_from(out, {**made_from, **networks}):
        text = (out / REPORT).read_text(encoding="utf-8")
        run, notes = track_if_installed(out, work=workspace)
        return Outcome(out, text, run, made=False, notes=notes)
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        planned = plan(
            labelled, trained_on=trained_on(reranker), max_queries=max_queries, seed=config.seed
        )
        if config.segment_by and not any(q.named(config.segment_by) for q in planned.fit.items):
            raise InputError(
                f"none of the queries has the metadata {config.segment_by!r} of `segment_by` "
                "(--segment-by)"
            )
        refuse_one_passage(labelled)
        pipeline = open_pipeline(labelled, config, workspace, index=index)
        made_from["corpus_digest"] = labelled.corpus_digest()
        contents = _fitted_and_measured(planned, pipeline, config, made_from, pooled)
        write_model(out, contents, overwrite=overwrite, carry=carry)
        run, notes = track_if_installed(out, work=workspace)
    return Outcome(out, contents.report, run, made=True, notes=notes)


def _refuse_unknown_calibrator(name: str) -> None:
    from calibration.score_fitting import SCORE_FITS

    known = ("auto", *SCORE_FITS)
    if name not in known:
        raise InputError(
            f"`calibrator` (--calibrator) should be one of {', '.join(known)}, got {name!r}"
            f"{nearest(name, known)}"
        )


def _fitted_and_measured(
    planned: Plan,
    pipeline: Pipeline,
    config: Config,
    made_from: Mapping[str, Any],
    pooled: PooledMaps | None,
) -> ModelContents:
    search = search_rankings(pipeline, planned, pooled.maps["search"] if pooled else None)
    rerank = rerank_rankings(pipeline, search, pooled.maps["rerank"] if pooled else None)
    about = mixture(planned.grouping.about, search.fit)
    with progress(4, "fitting, measuring, drawing", unit="step") as bar:
        fitted, fitted_rerank = (
            fit(r.fit, r.policy, config, about=about, pooled=r.pooled) for r in (search, rerank)
        )
        if planned.beside_training:
            fitted = replace(fitted, maps=without_promises(fitted.maps, BESIDE_TRAINING))
        own = fitted.right[: len(planned.fit)]  # copies are the last
        refuse_one_outcome(own, made_from["dataset"]["name"])
        bar.update()
        if planned.cross_fitted:
            held = held_out(search.fit, config)
            policies = fold_policies(search, held, config)
            parts, parts_rerank = (
                fold_fits(r, held, policies, config, about=about) for r in (search, rerank)
            )
        else:
            parts = [(search.report, fitted)]
            parts_rerank = [(rerank.report, fitted_rerank)]
        bar.update()
        evaluation = measure_parts(
            [
                Part(scored, one.maps, {**HEURISTICS, "temperature": one.scaled_logit})
                for scored, one in parts
            ],
            config,
        )
        of_rerank = measure_parts([Part(s, one.maps, {}) for s, one in parts_rerank], config)
        bar.update()
        report = make_report(
            planned,
            fitted,
            evaluation,
            config,
            fits=[one for _, one in parts],
            copies=len(search.fit) - len(planned.fit),
            rerank=of_rerank,
            made_from=made_from,
        )
        pictures = report_pictures(report_figures(report))
        bar.update()
    maps: dict[Mode, FittedMaps] = {
        "search": fitted.maps,
        "rerank": without_promises(fitted_rerank.maps, NO_LISTS),
    }
    return ModelContents(
        manifest={
            **made_from,
            "queries": planned.counts(),
            "calibrator": {"name": fitted.calibrator, "reason": fitted.reason},
        },
        maps=maps_to_dict(maps),
        sketch=fitted.sketch.to_dict(),
        measured=report.to_dict(),
        report=report_text(report),
        page=report_page(report, pictures),
        pictures={name: picture.whole for name, picture in pictures.items()},
        fitted_on=(query_hash(query.text) for query in planned.fit.items),
        index=pipeline.index.folder,
    )

"""The training job: a labelled set in; a calibrated, measured, tracked model folder out.

Index, rank, fit, measure, save, track. No query is reported on by a fit that saw it or its
group, and queries that the cross-encoder was trained on are left out: on them its logits flatter
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.assessment.features import features_of
from rerank.assessment.fitted_maps import maps_to_dict
from rerank.assessment.list_pipeline import ListPipeline
from rerank.assessment.metadata_features import choose_metadata_features
from rerank.assessment.model_folder import (
    MODEL_KIND,
    REPORT,
    RETRIEVER,
    Carry,
    ModelContents,
    fingerprints,
    write_model,
)
from rerank.assessment.pooled_maps import pooled_for
from rerank.assessment.retriever_pipeline import RetrieverPipeline
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.data.text import query_hash
from rerank.errors import InputError, nearest
from rerank.evaluation.baselines import HEURISTICS, OF_LOGITS, Heuristic
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
from rerank.fitting.rankings import (
    PlannedRankings,
    list_rankings,
    rerank_rankings,
    retriever_rankings,
    search_rankings,
)
from rerank.inference.model_files import ModelFiles, lasting_name, resolve, trained_on
from rerank.inference.networks import NETWORKS, ROLES, described, exported, write_networks
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.pipelines import open_pipeline
from rerank.jobs.retriever import as_held, refuse_other_vectors
from rerank.jobs.track import track_if_installed
from rerank.progress import progress
from rerank.report.page import report_figures, report_page, report_pictures
from rerank.report.report import make_report
from rerank.report.sentences import report_text
from rerank.retrieval.index import LAYOUT
from rerank.retrieval.systems.connect import connect
from rerank.retrieval.systems.settings import RetrieverSettings, read_settings
from rerank.retrieval.systems.system import SearchSystem
from rerank.storage.folder import is_made_from
from rerank.storage.locks import output_folder
from rerank.tracking.registry import name_of
from rerank.types import LISTS, ListKind, Mode
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
    retriever: str | Path | None = None,
) -> Outcome:
    """Run the whole job and write the model folder `out`, whole or not at all.

    Indexes and cross-encoder scores are kept under `work`: the same call, after an interruption,
    goes on from them. Where `out` already is the model of this very data, configuration and
    weights, it is not made again, but sent to MLflow if no run of it is known. `index` is a folder
    that `rerank index` wrote of this very corpus. With `self_contained` the folder carries its
    networks, exported: it then runs without the weights.

    `retriever` is the TOML file of another search system (`rerank.retrieval.systems`), whose
    collection the labels are of: it is asked instead of an index, and the model asks it too.

    Of lists that come with their scores (`labelled.lists`) no index is made, and no model is run.
    What is calibrated on them assesses such lists alone.

    `name` is that of MLflow's experiment, and of the registered model, of which this is a new
    version; by default it is made from the name of the set. Without MLflow the model is not
    tracked, and `notes` of the result say so.

    Raises:
        RetrieverError: the search system does not answer.
        InputError: an unknown calibrator, too few queries, one passage, labels that are all right
            or all wrong, a model that does not exist, an index of something else, an option that
            means nothing for lists, or a name that MLflow cannot hold.
        TrackingError: the model is written, and MLflow did not take its record; `track_model`
            sends it later.
        FolderError: `out` exists, is another model, and `overwrite` is False; or another job
            writes it now, or nothing can be written there.
    """
    out, workspace, config = Path(out), Workspace(Path(work)), config or Config()
    _refuse_unknown_calibrator(config.calibrator)
    if index is not None and retriever is not None:
        raise InputError("expected an `index` (--index) or a `retriever` (--retriever), got both")
    of_system: list[str] = []
    if labelled.lists:
        if index is not None or retriever is not None:
            raise InputError(
                "lists come with their scores: they need no index (`index`, --index) and no "
                "`retriever` (--retriever)"
            )
        source = _given_lists(labelled, labelled.lists, config)
    else:
        config = replace(
            config, encoder=lasting_name(config.encoder), reranker=lasting_name(config.reranker)
        )
    if retriever is not None:
        settings = read_settings(Path(retriever))
        system = connect(settings)
        labelled, of_system = as_held(labelled, system)
        source = _search_system(
            labelled, settings, system, config, workspace, self_contained=self_contained
        )
    elif not labelled.lists:
        source = _own_stages(labelled, config, workspace, index, self_contained=self_contained)
    refuse_one_passage(labelled)
    made_from: dict[str, Any] = {
        "name": name_of(name, labelled.name),
        "config": config.to_dict(),
        "dataset": labelled.described(),
        "max_queries": max_queries,
        **source.made_from,
    }
    if not overwrite and is_made_from(out, {**made_from, **source.networks}):
        text = (out / REPORT).read_text(encoding="utf-8")
        run, notes = track_if_installed(out, work=workspace)
        return Outcome(out, text, run, made=False, notes=(*of_system, *notes))
    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        planned = plan(
            labelled, trained_on=source.trained_on, max_queries=max_queries, seed=config.seed
        )
        if config.segment_by and not any(q.named(config.segment_by) for q in planned.fit.items):
            raise InputError(
                f"none of the queries has the metadata {config.segment_by!r} of `segment_by` "
                "(--segment-by)"
            )
        ranked, folder = source.rank(planned)
        made_from["corpus_digest"] = labelled.corpus_digest()
        contents = _fitted_and_measured(planned, ranked, source.baselines, config, made_from)
        contents = replace(contents, index=folder)
        write_model(out, contents, overwrite=overwrite, carry=source.carry)
        run, notes = track_if_installed(out, work=workspace)
    return Outcome(out, contents.report, run, made=True, notes=(*of_system, *notes))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the scores of a set come from: what a job needs of it besides the labels.

    `rank` gives what each mode of the model is fitted on, the main one first, and its index.
    """

    made_from: Mapping[str, Any]
    rank: Callable[[Plan], tuple[Mapping[Mode, PlannedRankings], Path | None]]
    baselines: Mapping[str, Heuristic]
    trained_on: frozenset[str] = frozenset()
    networks: Mapping[str, Any] = field(default_factory=dict)
    carry: Carry | None = None


def _own_stages(
    labelled: LabelledSet,
    config: Config,
    workspace: Workspace,
    index: Path | None,
    *,
    self_contained: bool,
) -> _Source:
    """Our own index and models, over the corpus of the set."""
    encoder, reranker = models = resolve(config.encoder), resolve(config.reranker)
    pooled = pooled_for(encoder, reranker, config)

    metadata = choose_metadata_features(config.metadata_keys, labelled.corpus.values())

    def rank(planned: Plan) -> tuple[Mapping[Mode, PlannedRankings], Path | None]:
        pipeline = open_pipeline(labelled, config, workspace, index=index, metadata=metadata)
        search = search_rankings(pipeline, planned, pooled.maps["search"] if pooled else None)
        rerank = rerank_rankings(pipeline, search, pooled.maps["rerank"] if pooled else None)
        return {"search": search, "rerank": rerank}, pipeline.index.folder

    made_from = {
        "fingerprints": fingerprints(encoder, reranker, config),
        "fitted_around": pooled.described() if pooled else None,
        "inputs": {**features_of(None, metadata).names(), "index": LAYOUT},
    }
    carried = _carried(models, config) if self_contained else {}
    return _Source(made_from, rank, HEURISTICS, trained_on(reranker), **carried)


def _search_system(
    labelled: LabelledSet,
    settings: RetrieverSettings,
    system: SearchSystem,
    config: Config,
    workspace: Workspace,
    *,
    self_contained: bool,
) -> _Source:
    """Another search system for the candidates, and our cross-encoder."""
    encoder, reranker = models = resolve(config.encoder), resolve(config.reranker)
    cache = ScoreCache(workspace.scores)
    metadata = choose_metadata_features(config.metadata_keys, labelled.corpus.values())
    pipeline = RetrieverPipeline(system, config, cache=cache, models=models, metadata=metadata)

    def rank(planned: Plan) -> tuple[Mapping[Mode, PlannedRankings], Path | None]:
        refuse_other_vectors(pipeline, labelled)
        return {"search": retriever_rankings(pipeline, planned)}, None

    made_from = {
        RETRIEVER: settings.to_dict(),
        "fingerprints": fingerprints(encoder, reranker, config),
        "inputs": {
            "stages": list(pipeline.kind.stages),
            **features_of(pipeline.kind, metadata).names(),
        },
    }
    carried = _carried(models, config) if self_contained else {}
    return _Source(made_from, rank, OF_LOGITS, trained_on(reranker), **carried)


def _carried(models: tuple[ModelFiles, ModelFiles], config: Config) -> dict[str, Any]:
    """What a `_Source` says of networks that the model folder is to carry.

    Raises:
        InputError: one cannot be exported.
    """
    for role, files in zip(ROLES, models, strict=True):
        exported(files, role, config.precision)  # if it cannot be, better known now
    carry = partial(write_networks, models=models, precision=config.precision)
    return {"networks": {NETWORKS: described(config.precision)}, "carry": carry}


def _given_lists(labelled: LabelledSet, kind: ListKind, config: Config) -> _Source:
    """The stages of any other system: their scores came with the lists."""
    if config.expected_unanswerable:
        raise InputError(
            "of lists no copies without their answers can be made (`expected_unanswerable`): what "
            "the stages would bring instead is not known. Add lists of questions that nothing "
            "answers"
        )

    metadata = choose_metadata_features(config.metadata_keys, labelled.corpus.values())

    def rank(planned: Plan) -> tuple[Mapping[Mode, PlannedRankings], Path | None]:
        return {LISTS: list_rankings(ListPipeline(kind, config, metadata), planned)}, None

    names = features_of(kind, metadata).names()
    inputs = {"stages": list(kind.stages), "texts": kind.texts, **names}
    return _Source({"fingerprints": {}, "inputs": inputs}, rank, OF_LOGITS)


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
    ranked: Mapping[Mode, PlannedRankings],
    baselines: Mapping[str, Heuristic],
    config: Config,
    made_from: Mapping[str, Any],
) -> ModelContents:
    """Fit and measure each mode; the first one is the main one, which is compared with others."""
    main, *others = ranked
    first = ranked[main]
    with progress(4, "fitting, measuring, drawing", unit="step") as bar:
        fits = {
            mode: fit(
                r.fit,
                r.policy,
                config,
                about=r.about,
                pooled=r.pooled,
                lists=r.lists,
                metadata=r.metadata,
                to_keep=True,
            )
            for mode, r in ranked.items()
        }
        fitted = fits[main]
        if planned.beside_training:
            fitted = replace(fitted, maps=without_promises(fitted.maps, BESIDE_TRAINING))
        own = fitted.right[: len(planned.fit)]  # copies are the last
        refuse_one_outcome(own, made_from["dataset"]["name"])
        bar.update()
        if planned.cross_fitted:
            held = held_out(first.fit, config)
            policies = fold_policies(first, held, config)
            parts = {mode: fold_fits(r, held, policies, config) for mode, r in ranked.items()}
        else:
            parts = {mode: [(r.report, fits[mode])] for mode, r in ranked.items()}
        bar.update()
        evaluation = measure_parts(
            [
                Part(scored, one.maps, {**baselines, "temperature": one.scaled_logit})
                for scored, one in parts[main]
            ],
            config,
        )
        measured = {
            mode: measure_parts([Part(s, one.maps, {}) for s, one in parts[mode]], config)
            for mode in others
        }
        bar.update()
        report = make_report(
            planned,
            fitted,
            evaluation,
            config,
            fits=[one for _, one in parts[main]],
            copies=len(first.fit) - len(planned.fit),
            rerank=measured.get("rerank"),
            made_from=made_from,
        )
        text = report_text(report)
        pictures = report_pictures(report_figures(report))
        page = report_page(report, pictures)
        bar.update()
    maps = {main: fitted.maps}
    maps |= {mode: without_promises(fits[mode].maps, NO_LISTS) for mode in others}
    return ModelContents(
        manifest={
            **made_from,
            "queries": planned.counts(),
            "calibrator": {"name": fitted.calibrator, "reason": fitted.reason},
        },
        maps=maps_to_dict(maps),
        sketch=fitted.sketch.to_dict(),
        measured=report.to_dict(),
        report=text,
        page=page,
        pictures={name: picture.whole for name, picture in pictures.items()},
        fitted_on=(query_hash(query.text) for query in planned.fit.items),
        index=None,
    )

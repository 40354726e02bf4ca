"""Where the candidates of a calibration come from: our index, another search system, or lists.

Each gives the same: how to rank the queries, what the model is made from, and the baselines to
compare with. So `calibrate` does not know which of the three it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rerank.assessment.features import features_of
from rerank.assessment.list_pipeline import ListPipeline
from rerank.assessment.metadata_features import MetadataFeature, choose_metadata_features
from rerank.assessment.model_folder import RETRIEVER, WriteExported, fingerprints
from rerank.assessment.pooled_maps import pooled_for
from rerank.assessment.retriever_pipeline import RetrieverPipeline
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.evaluation.baselines import HEURISTICS, OF_LOGITS, Heuristic
from rerank.fitting.plan import Plan
from rerank.fitting.rankings import (
    PlannedRankings,
    list_rankings,
    rerank_rankings,
    retriever_rankings,
    search_rankings,
)
from rerank.inference.exported_models import (
    NETWORKS,
    ROLES,
    exported_files,
    manifest_entry,
    write_exported,
)
from rerank.inference.model_files import ModelFiles, lasting_name, resolve, trained_on
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.pipelines import open_pipeline
from rerank.jobs.retriever_checks import as_held, check_vectors
from rerank.retrieval.index import LAYOUT
from rerank.retrieval.systems.connect import connect
from rerank.retrieval.systems.settings import read_settings
from rerank.types import LISTS, ListKind, Mode
from rerank.workspace import Workspace

Metadata = tuple[MetadataFeature, ...]


@dataclass(frozen=True, slots=True)
class CandidateSource:
    """What finds and scores the candidates of a calibration, and what the model records of it.

    rank: takes a plan, and returns the rankings of its queries that each mode of the model is
        fitted on, the main mode first, and the folder of the index, if there is one.
    made_from: the manifest's entries about the source; equal entries mean the same model.
    """

    labelled: LabelledSet  # its corpus is the part that the source holds
    config: Config
    made_from: Mapping[str, Any]
    rank: Callable[[Plan], tuple[Mapping[Mode, PlannedRankings], Path | None]]
    baselines: Mapping[str, Heuristic]
    trained_on: frozenset[str] = frozenset()  # hashes of queries that the cross-encoder has seen
    networks: Mapping[str, Any] = field(default_factory=dict)
    write_exported: WriteExported | None = None  # writes the networks into the model folder
    notes: tuple[str, ...] = ()  # what the user should know about the source


def open_candidate_source(
    labelled: LabelledSet,
    config: Config,
    workspace: Workspace,
    *,
    index: Path | None,
    retriever: str | Path | None,
    self_contained: bool,
) -> CandidateSource:
    """The source of a set: its own lists, the search system of `retriever`, or our own stages.

    The arguments are those of `rerank.calibrate`.

    Raises:
        RetrieverError: the search system does not answer.
        InputError: arguments that exclude each other, a model that does not exist, a metadata key
            that gives no feature, or a system without the labelled passages.
    """
    if index is not None and retriever is not None:
        raise InputError("expected an `index` (--index) or a `retriever` (--retriever), got both")
    if labelled.lists:
        if index is not None or retriever is not None:
            raise InputError(
                "lists come with their scores: they need no index (`index`, --index) and no "
                "`retriever` (--retriever)"
            )
        return _given_lists(labelled, labelled.lists, config)
    config = replace(
        config, encoder=lasting_name(config.encoder), reranker=lasting_name(config.reranker)
    )
    models = encoder, reranker = resolve(config.encoder), resolve(config.reranker)
    if retriever is None:
        source = _own_stages(labelled, config, workspace, index, models)
    else:
        source = _search_system(labelled, config, workspace, Path(retriever), models)
    made_from = {"fingerprints": fingerprints(encoder, reranker, config), **source.made_from}
    networks = _exported(models, config) if self_contained else {}
    return replace(source, made_from=made_from, trained_on=trained_on(reranker), **networks)


def _own_stages(
    labelled: LabelledSet,
    config: Config,
    workspace: Workspace,
    index: Path | None,
    models: tuple[ModelFiles, ModelFiles],
) -> CandidateSource:
    """Our own index and models, over the corpus of the set."""
    pooled, metadata = pooled_for(*models, config), _metadata(labelled, config)

    def rank(planned: Plan) -> tuple[Mapping[Mode, PlannedRankings], Path | None]:
        pipeline = open_pipeline(labelled, config, workspace, index=index, metadata=metadata)
        search = search_rankings(pipeline, planned, pooled.maps["search"] if pooled else None)
        rerank = rerank_rankings(pipeline, search, pooled.maps["rerank"] if pooled else None)
        return {"search": search, "rerank": rerank}, pipeline.index.folder

    made_from = {
        "fitted_around": pooled.described() if pooled else None,
        "inputs": {**features_of(None, metadata).names(), "index": LAYOUT},
    }
    return CandidateSource(labelled, config, made_from, rank, HEURISTICS)


def _search_system(
    labelled: LabelledSet,
    config: Config,
    workspace: Workspace,
    retriever: Path,
    models: tuple[ModelFiles, ModelFiles],
) -> CandidateSource:
    """Another search system for the candidates, and our cross-encoder."""
    system = connect(read_settings(retriever))
    labelled, notes = as_held(labelled, system)
    metadata, cache = _metadata(labelled, config), ScoreCache(workspace.scores)
    pipeline = RetrieverPipeline(system, config, cache=cache, models=models, metadata=metadata)

    def rank(planned: Plan) -> tuple[Mapping[Mode, PlannedRankings], Path | None]:
        check_vectors(pipeline, labelled)
        return {"search": retriever_rankings(pipeline, planned)}, None

    names = features_of(pipeline.kind, metadata).names()
    made_from = {
        RETRIEVER: system.settings.to_dict(),
        "inputs": {"stages": list(pipeline.kind.stages), **names},
    }
    return CandidateSource(labelled, config, made_from, rank, OF_LOGITS, notes=tuple(notes))


def _given_lists(labelled: LabelledSet, kind: ListKind, config: Config) -> CandidateSource:
    """The stages of any other system, whose scores came with the lists."""
    if config.expected_unanswerable:
        raise InputError(
            "of lists no copies without their answers can be made (`expected_unanswerable`): what "
            "the stages would bring instead is not known. Add lists of questions that nothing "
            "answers"
        )
    metadata = _metadata(labelled, config)

    def rank(planned: Plan) -> tuple[Mapping[Mode, PlannedRankings], Path | None]:
        return {LISTS: list_rankings(ListPipeline(kind, config, metadata), planned)}, None

    names = features_of(kind, metadata).names()
    inputs = {"stages": list(kind.stages), "texts": kind.texts, **names}
    return CandidateSource(
        labelled, config, {"fingerprints": {}, "inputs": inputs}, rank, OF_LOGITS
    )


def _metadata(labelled: LabelledSet, config: Config) -> Metadata:
    return choose_metadata_features(config.metadata_keys, labelled.corpus.values())


def _exported(models: tuple[ModelFiles, ModelFiles], config: Config) -> dict[str, Any]:
    """The fields of a `CandidateSource` whose model folder is to include its networks.

    Raises:
        InputError: a network cannot be exported.
    """
    for role, files in zip(ROLES, models, strict=True):
        exported_files(files, role, config.precision)  # fail now, not after the fit
    write = partial(write_exported, models=models, precision=config.precision)
    return {"networks": {NETWORKS: manifest_entry(config.precision)}, "write_exported": write}

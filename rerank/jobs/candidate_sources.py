"""Where the candidates of a calibration come from: our index, another search system, or lists.

Only `open_candidate_source` tells these apart; the `Source` of the pipeline answers for its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rerank.assessment.fitted_maps import PooledMaps, features_of, pooled_for
from rerank.assessment.metadata_features import Metadata, choose_metadata_features
from rerank.assessment.model_folder import RETRIEVER, fingerprints, given_models
from rerank.assessment.pipeline import ENCODER_OPTIONS, RERANKER_OPTIONS, Models, Pipeline
from rerank.assessment.sources.lists import ScoredLists
from rerank.assessment.sources.other_system import OtherSystem, with_held_passages
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.inference.model_files import ModelPair, trained_on
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.pipelines import open_pipeline
from rerank.retrieval.dense import PassageText
from rerank.retrieval.index import layout_of
from rerank.retrieval.system import VECTOR, SearchSystem
from rerank.rooms import offered
from rerank.workspace import Workspace

POOLED_OVER_IT = (
    "the pooled maps were fitted on labels of a set named {name}, too. If it is this one, its "
    "certificate and figures are slightly too good, because the maps have seen these labels; see "
    "docs/your-labels.md"
)
# fields of `Config` without effect on lists, which come with their scores
STAGE_OPTIONS = ["encoder", *ENCODER_OPTIONS, "reranker", *RERANKER_OPTIONS, "dense", "pool"]
STAGE_OPTIONS += ["candidates", "rerank_depth"]
TRIED = 20  # passages to encode and search for
NEAREST = 10  # results that should include the passage itself


@dataclass(frozen=True, slots=True)
class CandidateSource:
    """What finds and scores the candidates of a calibration, and what the model records of it."""

    labelled: LabelledSet  # its corpus is the part that the source holds
    made_from: Mapping[str, Any]  # entries of the manifest; equal entries mean the same model
    open: Callable[[], Pipeline]
    models: ModelPair | None = None
    pooled: PooledMaps | None = None
    notes: tuple[str, ...] = ()  # what the user should know about the source

    @property
    def trained_on(self) -> frozenset[str]:
        """Hashes of the queries that the models were trained on."""
        return trained_on(*(self.models or ()))


def open_candidate_source(
    labelled: LabelledSet,
    config: Config,
    models: ModelPair | None,
    workspace: Workspace,
    *,
    index: Path | None,
    retriever: str | Path | None,
) -> CandidateSource:
    """The source of a set: its own lists, the search system of `retriever`, or our own index.

    `models` are those of `config`; None for a set of lists. The rest is as for `rerank.calibrate`.
    """
    if index is not None and retriever is not None:
        raise InputError("expected an `index` (--index) or a `retriever` (--retriever), got both")
    if models is None:
        if index is not None or retriever is not None:
            raise InputError(
                "lists come with their scores: they need no index (`index`, --index) and no "
                "`retriever` (--retriever)"
            )
        return _lists(labelled, config)
    if retriever is None:
        return _own_index(labelled, config, models, workspace, index)
    return _other_system(labelled, config, models, workspace, Path(retriever))


def _own_index(
    labelled: LabelledSet,
    config: Config,
    models: ModelPair,
    workspace: Workspace,
    index: Path | None,
) -> CandidateSource:
    pooled = pooled_for(*models, config)
    metadata = _metadata_of(labelled, config)
    open_ = partial(
        open_pipeline, labelled, config, workspace, index=index, models=models, metadata=metadata
    )
    made_from = {
        "fingerprints": fingerprints(*models, config),
        **given_models(models),
        "fitted_around": pooled.described() if pooled else None,
        "inputs": {**features_of(metadata=metadata).names(), "index": layout_of(config.language)},
    }
    known = pooled and not pooled.marks and labelled.name in pooled.described()["sets"]
    notes = (POOLED_OVER_IT.format(name=labelled.name),) if known else ()
    return CandidateSource(labelled, made_from, open_, models, pooled, notes)


def _other_system(
    labelled: LabelledSet, config: Config, models: ModelPair, workspace: Workspace, retriever: Path
) -> CandidateSource:
    system: SearchSystem = offered("search systems")(retriever)
    labelled, notes = with_held_passages(labelled, system)
    metadata = _metadata_of(labelled, config)
    source = OtherSystem(system, config, metadata)

    def open_() -> Pipeline:
        pipeline = Pipeline(source, Models.open(config, models, ScoreCache(workspace.scores)))
        check_vectors(pipeline, system, labelled)
        return pipeline

    names = features_of(source.kind, metadata).names()
    made_from = {
        "fingerprints": fingerprints(*models, config),
        **given_models(models),
        RETRIEVER: system.settings.to_dict(),
        "inputs": {"stages": list(source.kind.stages), **names},
    }
    return CandidateSource(labelled, made_from, open_, models, notes=notes)


def _lists(labelled: LabelledSet, config: Config) -> CandidateSource:
    if config.expected_unanswerable:
        raise InputError(
            "no unanswerable copies of lists can be made (`expected_unanswerable`): what the "
            "stages would bring instead is not known. Add lists of questions that nothing answers"
        )
    for name in STAGE_OPTIONS:
        if getattr(config, name) != getattr(Config(), name):
            raise InputError(
                f"`{name}` (--{name.replace('_', '-')}) has no effect on lists, which come with "
                "their scores: leave it out"
            )
    assert labelled.lists is not None, "only lists need no models"
    metadata = _metadata_of(labelled, config)
    source = ScoredLists(labelled.lists, config, metadata)
    kind, names = source.kind, features_of(source.kind, metadata).names()
    inputs = {"stages": list(kind.stages), "texts": kind.texts, **names}
    made_from = {"fingerprints": {}, "inputs": inputs}
    return CandidateSource(labelled, made_from, partial(Pipeline, source, None))


def _metadata_of(labelled: LabelledSet, config: Config) -> Metadata:
    """The features of the metadata that the configuration names."""
    passages, queries = labelled.corpus.values(), labelled.queries.values()
    return choose_metadata_features(config.metadata_keys, passages, queries)


def check_vectors(pipeline: Pipeline, system: SearchSystem, labelled: LabelledSet) -> None:
    """Refuse a collection whose vectors were made by another encoder.

    An encoded passage should be among the nearest to its own vector. This costs a few searches.
    """
    settings, held = system.settings, [p for p in labelled.corpus.values() if p.text]
    tried = held[:: max(1, len(held) // TRIED)][:TRIED]
    if VECTOR not in settings.stages or not tried:
        return
    vectors = pipeline.encode([PassageText(passage.full_text) for passage in tried])
    near = sum(
        any(hit.passage.doc_id == passage.doc_id for hit in system.vector(vector, NEAREST))
        for passage, vector in zip(tried, vectors, strict=True)
    )
    if 2 * near < len(tried):
        raise InputError(
            f"{settings}: of {len(tried)} passages, encoded by {pipeline.config.encoder}, {near} "
            f"are among the {NEAREST} nearest to themselves; the vectors of {settings.vector!r} "
            "were made by another encoder: name it (--encoder), or leave `vector` out"
        )

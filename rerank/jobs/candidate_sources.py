"""Where the candidates of a calibration come from: our index, another search system, or lists.

So `calibrate` does not know which of the three it uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.assessment.features import features_of
from rerank.assessment.list_pipeline import ListPipeline
from rerank.assessment.metadata_features import choose_metadata_features
from rerank.assessment.model_folder import RETRIEVER, fingerprints
from rerank.assessment.pipeline import Models
from rerank.assessment.pooled_maps import pooled_for
from rerank.assessment.retriever_pipeline import RetrieverPipeline
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.evaluation.baselines import HEURISTICS, OF_LOGITS, Heuristic
from rerank.fitting.plan import Plan
from rerank.fitting.scored_plan import (
    ScoredPlan,
    score_lists,
    score_rerank,
    score_retriever,
    score_search,
)
from rerank.inference.model_files import ModelPair, trained_on
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.pipelines import open_pipeline
from rerank.jobs.retriever_checks import check_vectors
from rerank.jobs.retriever_corpus import with_held_passages
from rerank.retrieval.index import LAYOUT
from rerank.retrieval.systems.connect import connect
from rerank.retrieval.systems.settings import read_settings
from rerank.types import LISTS, ListKind, Mode
from rerank.workspace import Workspace

POOLED_OVER_IT = (
    "the pooled maps were fitted on labels of a set named {name}, too. If it is this one, its "
    "certificate and figures are slightly too good, because the maps have seen these labels; see "
    "docs/without-labels.md"
)


OF_OUR_STAGES = (  # fields of `Config` without effect on lists, which come with their scores
    "encoder",
    "encoder_max_length",
    "encoder_windows",
    "reranker",
    "max_length",
    "long_passages",
    "precision",
    "dense",
    "pool",
    "candidates",
    "rerank_depth",
)


class CandidateSource(ABC):
    """What finds and scores the candidates of a calibration, and what the model records of it."""

    labelled: LabelledSet  # its corpus is the part that the source holds
    made_from: Mapping[str, Any]  # entries of the manifest; equal entries mean the same model
    baselines: Mapping[str, Heuristic] = OF_LOGITS
    models: ModelPair | None = None
    notes: tuple[str, ...] = ()  # what the user should know about the source
    index_folder: Path | None = None  # of our own index, once it is opened to score

    def __init__(self, labelled: LabelledSet, config: Config) -> None:
        self.labelled = labelled
        self.config = config
        self.metadata = choose_metadata_features(config.metadata_keys, labelled.corpus.values())

    @abstractmethod
    def score(self, planned: Plan) -> Mapping[Mode, ScoredPlan]:
        """The plan's queries with scored candidates, for each mode."""

    @property
    def trained_on(self) -> frozenset[str]:
        """Hashes of the queries that the models were trained on."""
        return trained_on(*(self.models or ()))


class OurIndex(CandidateSource):
    """Our own index and models, over the corpus of the set."""

    baselines = HEURISTICS

    def __init__(
        self,
        labelled: LabelledSet,
        config: Config,
        models: ModelPair,
        workspace: Workspace,
        index: Path | None,
    ) -> None:
        super().__init__(labelled, config)
        self.models = models
        self.workspace = workspace
        self.index = index
        self.pooled = pooled_for(*models, config)
        if self.pooled and labelled.name in self.pooled.described()["sets"]:
            self.notes = (POOLED_OVER_IT.format(name=labelled.name),)
        self.made_from = {
            "fingerprints": fingerprints(*models, config),
            "fitted_around": self.pooled.described() if self.pooled else None,
            "inputs": {**features_of(None, self.metadata).names(), "index": LAYOUT},
        }

    def score(self, planned: Plan) -> Mapping[Mode, ScoredPlan]:
        """The candidates of a search, and those that callers would bring."""
        pipeline = open_pipeline(
            self.labelled,
            self.config,
            self.workspace,
            index=self.index,
            models=self.models,
            metadata=self.metadata,
        )
        pooled = self.pooled.maps if self.pooled else {}
        search = score_search(pipeline, planned, pooled.get("search"))
        rerank = score_rerank(pipeline, search, pooled.get("rerank"))
        self.index_folder = pipeline.index.folder
        return {"search": search, "rerank": rerank}


class SearchSystemSource(CandidateSource):
    """Another search system for the candidates, and our cross-encoder."""

    def __init__(
        self,
        labelled: LabelledSet,
        config: Config,
        models: ModelPair,
        workspace: Workspace,
        retriever: Path,
    ) -> None:
        system = connect(read_settings(retriever))
        labelled, self.notes = with_held_passages(labelled, system)
        super().__init__(labelled, config)
        self.models = models
        opened = Models.open(config, models, ScoreCache(workspace.scores))
        self.pipeline = RetrieverPipeline(system, config, models=opened, metadata=self.metadata)
        kind = self.pipeline.kind
        self.made_from = {
            "fingerprints": fingerprints(*models, config),
            RETRIEVER: system.settings.to_dict(),
            "inputs": {"stages": list(kind.stages), **features_of(kind, self.metadata).names()},
        }

    def score(self, planned: Plan) -> Mapping[Mode, ScoredPlan]:
        """The candidates of the system's searches."""
        check_vectors(self.pipeline, self.labelled)
        return {"search": score_retriever(self.pipeline, planned)}


class CallerLists(CandidateSource):
    """The stages of any other system, whose scores came with the lists."""

    def __init__(self, labelled: LabelledSet, config: Config, kind: ListKind) -> None:
        if config.expected_unanswerable:
            raise InputError(
                "no unanswerable copies of lists can be made (`expected_unanswerable`): "
                "what the stages would bring instead is not known. Add lists of questions that "
                "nothing answers"
            )
        default = Config()
        for name in OF_OUR_STAGES:
            if getattr(config, name) != getattr(default, name):
                raise InputError(
                    f"`{name}` (--{name.replace('_', '-')}) has no effect on lists, which come "
                    "with their scores: leave it out"
                )
        super().__init__(labelled, config)
        self.pipeline = ListPipeline(kind, config, self.metadata)
        names = features_of(kind, self.metadata).names()
        self.made_from = {
            "fingerprints": {},
            "inputs": {"stages": list(kind.stages), "texts": kind.texts, **names},
        }

    def score(self, planned: Plan) -> Mapping[Mode, ScoredPlan]:
        """The lists as they are."""
        return {LISTS: score_lists(self.pipeline, planned)}


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

    `models` are those of `config`; None for a set of lists. The other arguments are those of
    `rerank.calibrate`.

    Raises:
        RetrieverError: the search system does not answer.
        InputError: arguments that exclude each other, a metadata key that gives no feature, or a
            system without the labelled passages.
    """
    if index is not None and retriever is not None:
        raise InputError("expected an `index` (--index) or a `retriever` (--retriever), got both")
    if labelled.lists:
        if index is not None or retriever is not None:
            raise InputError(
                "lists come with their scores: they need no index (`index`, --index) and no "
                "`retriever` (--retriever)"
            )
        return CallerLists(labelled, config, labelled.lists)
    assert models is not None, "only lists need no models"
    if retriever is None:
        return OurIndex(labelled, config, models, workspace, index)
    return SearchSystemSource(labelled, config, models, workspace, Path(retriever))

"""Candidates of another search system, scored by our cross-encoder: lists with scores.

    query -> the system's searches -> fused -> the likeliest scored by the cross-encoder -> a list

A system gives less than our own index does, so the features are those of lists that come with their
scores: its searches are the first stages, and our cross-encoder is the last one. Such a list can be
stored and assessed again without the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import numpy as np

from rerank.assessment.list_pipeline import ListPipeline
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.pipeline import Models, Pipeline, Selection
from rerank.config import Config
from rerank.retrieval.dense import Vectors
from rerank.retrieval.no_index import NoIndex
from rerank.retrieval.systems.system import SearchSystem, query_with_results
from rerank.types import Bools, Candidates, Floats, ListKind, Passage, Query, Scored

RERANKER = "reranker"  # the last stage


class RetrieverPipeline(Pipeline):
    """A `Pipeline` whose candidates another system finds.

    A list that comes with a score of our reranker is used as it is. One without any, null for every
    passage, is scored here.
    """

    remote_search = True

    def __init__(
        self,
        system: SearchSystem,
        config: Config,
        *,
        models: Models,
        metadata: tuple[MetadataFeature, ...] = (),
    ) -> None:
        super().__init__(NoIndex(config.language), config, models, metadata)
        self.system = system
        self.kind = ListKind((*system.settings.stages, RERANKER), texts=True)
        self.list_pipeline = ListPipeline(self.kind, config, metadata)

    def scores_are_known(self, query: Query) -> bool:
        """Whether a passage came with a score of our reranker."""
        last = (query.scores or {}).get(RERANKER)
        return last is not None and not np.isnan(last).all()

    def check(self, query: Query) -> None:
        """Refuse a list that came with other scores than those of the system and our reranker."""
        self.list_pipeline.check(query)

    def texts_of(self, query: Query) -> list[str]:
        """The query, if the system is searched."""
        return [query.text] if query.passages is None else []

    def candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The list that came with the query and its scores, else what the system returns."""
        if query.passages is None:
            return self.search(query, vectors[query.text], query.without)
        return self.list_pipeline.candidates_of_list(query)

    def search(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Candidates:
        """The candidates that the system returns, none of which the cross-encoder has scored."""
        pool, count = self.config.pool, self.config.candidates
        with_results = self._with_results(query, vector, pool, count, without)
        unscored = np.full(len(with_results.passages or ()), np.nan)
        scores = {**(with_results.scores or {}), RERANKER: unscored}
        return self.list_pipeline.candidates_of_list(replace(with_results, scores=scores))

    def best_of_stages(self, text: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each search of the system."""
        (vector,), stages = self.encode([text]), len(self.system.settings.stages)
        return self._with_results(Query(text), vector, count, stages * count).passages or ()

    def select(self, candidates: Candidates, prior_scores: Floats, cutoff: float) -> Selection:
        """The likeliest candidates, to be scored; all of a list whose scores are known."""
        known = self.scores_are_known(candidates.query)
        select = self.list_pipeline.select if known else super().select
        return select(candidates, prior_scores, cutoff)

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates as a list whose last stage is the cross-encoder."""
        if selection.known:
            return self.list_pipeline.with_scores(selection, logits, truncated)
        candidates, rows = selection.candidates, selection.candidates.first_stage.rows
        last = np.full(len(candidates.query.passages or ()), np.nan)
        last[rows[: len(logits)]] = logits
        query = candidates.query
        query = replace(query, scores={**(query.scores or {}), RERANKER: last})
        ranked = self.list_pipeline.candidates_of_list(query)
        place = {row: i for i, row in enumerate(ranked.first_stage.rows.tolist())}
        order = np.array([place[row] for row in rows.tolist()], dtype=np.int64)
        truncated = truncated | selection.partly
        return Scored(ranked.take(order), selection.prior_scores, logits, truncated)

    def _with_results(
        self,
        query: Query,
        vector: Vectors,
        pool: int,
        count: int,
        without: Set[str] = frozenset(),
    ) -> Query:
        """The query with the passages that the system returns, and their scores."""
        return query_with_results(
            self.system,
            query,
            vector,
            pool=pool,
            count=count,
            rrf_k=self.config.rrf_k,
            without=without,
        )

"""Candidates of another search system, scored by our cross-encoder: lists with scores.

    query -> the system's searches -> fused -> the likeliest scored by the cross-encoder -> a list

A system gives less than our own index does, so the features are those of lists that come with their
scores: its searches are the first stages, and our cross-encoder is the last one. Such a list can be
stored and assessed again without the system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from rerank.assessment.list_pipeline import ListPipeline
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.pipeline import Pipeline, Selection
from rerank.config import Config
from rerank.inference.cross_encoder import CrossEncoder
from rerank.inference.model_files import ModelFiles, resolve
from rerank.inference.score_cache import ScoreCache
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.systems.system import SearchSystem, fetch_candidates
from rerank.types import Bools, Candidates, Floats, ListKind, Passage, Query, Scored

RERANKER = "reranker"  # the last stage


class RetrieverPipeline(ListPipeline):
    """A `Pipeline` whose candidates another system finds.

    A list that comes with the scores of all its stages is used as it is.
    """

    has_models = True
    remote_search = True

    def __init__(
        self,
        system: SearchSystem,
        config: Config,
        *,
        cache: ScoreCache | None = None,
        models: tuple[ModelFiles, ModelFiles] | None = None,
        metadata: tuple[MetadataFeature, ...] = (),
    ) -> None:
        kind = ListKind((*system.settings.stages, RERANKER), texts=True)
        super().__init__(kind, config, metadata)
        self.system = system
        encoder, reranker = models or (resolve(config.encoder), resolve(config.reranker))
        self.encoder = Encoder(encoder, max_length=config.encoder_max_length)
        self.reranker = CrossEncoder(
            reranker, max_length=config.max_length, precision=config.precision, cache=cache
        )

    def _retrieve(self, queries: Sequence[Query]) -> list[Candidates]:
        texts = list(dict.fromkeys(q.text for q in queries if q.passages is None))
        vectors = dict(zip(texts, self.encode(texts), strict=True)) if texts else {}
        return [self.candidates(query, vectors) for query in queries]

    def retrieve_without(
        self, queries: Sequence[Query], gone: Sequence[Set[str]]
    ) -> list[Candidates]:
        """The candidates that the system would return if these passages, by id, were not there.

        Only the word statistics are those of the whole collection.
        """
        vectors = self.encode([query.text for query in queries])
        asked = zip(queries, vectors, gone, strict=True)
        return [self._listed(self._fetched(*one)) for one in asked]

    def best_of_stages(self, text: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each search of the system."""
        (vector,), c = self.encode([text]), self.config
        stages = len(self.system.settings.stages)
        found = fetch_candidates(
            self.system, Query(text), vector, pool=count, count=stages * count, rrf_k=c.rrf_k
        )
        return found.passages or ()

    def candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The candidates that the system returns, or the list that came with the query."""
        if query.passages is not None:
            return super().candidates(query, vectors)
        return self._listed(self._fetched(query, vectors[query.text]))

    def select(self, candidates: Candidates, prior: Floats, cutoff: float) -> Selection:
        """The likeliest candidates, to be scored; all of a list that came with all its scores."""
        if not np.isnan(self._last(candidates)).all():
            return super().select(candidates, prior, cutoff)
        return Pipeline.select(self, candidates, prior, cutoff)

    def with_scores(self, selection: Selection, logits: Floats, truncated: Bools) -> Scored:
        """The candidates as a list whose last stage is the cross-encoder."""
        if selection.known:
            return super().with_scores(selection, logits, truncated)
        candidates, rows = selection.candidates, selection.candidates.first_stage.rows
        last = np.full(len(rows), np.nan)
        last[rows[: len(logits)]] = logits
        query = candidates.query
        query = replace(query, scores={**(query.scores or {}), RERANKER: last})
        whole = super().candidates(query, {})
        place = np.argsort(whole.first_stage.rows)
        return Scored(whole.take(place[rows]), selection.prior, logits, truncated)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> tuple[Floats, Bools]:
        """Logits of pairs, shape (n,), and whether each pair was truncated."""
        return Pipeline.score_pairs(self, pairs)

    def _fetched(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Query:
        """The query with its candidates, none of which the cross-encoder has scored."""
        c = self.config
        found = fetch_candidates(
            self.system,
            query,
            vector,
            pool=c.pool,
            count=c.candidates,
            rrf_k=c.rrf_k,
            without=without,
        )
        unscored = np.full(len(found.passages or ()), np.nan)
        return replace(found, scores={**(found.scores or {}), RERANKER: unscored})

    def _listed(self, query: Query) -> Candidates:
        return super().candidates(query, {})

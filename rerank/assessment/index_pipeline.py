"""Candidates of our own index, or of the passages that callers bring, and our two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.pipeline import Models, Pipeline
from rerank.config import Config
from rerank.data.equal_passages import distinct, highest_of_equal, with_text
from rerank.retrieval.caller_passages import rank_passages
from rerank.retrieval.dense import Vectors, cosines
from rerank.retrieval.fusion import fused_without
from rerank.retrieval.searchable_index import SearchableIndex
from rerank.types import Candidates, Floats, Passage, Query


class IndexPipeline(Pipeline):
    """A `Pipeline` over our own index, or any other `SearchableIndex`.

    `models` are those that the configuration names, if the caller has opened them.

    Raises:
        InputError: the index was made for another encoder or configuration.
    """

    def __init__(
        self,
        index: SearchableIndex,
        config: Config,
        *,
        models: Models | None = None,
        metadata: tuple[MetadataFeature, ...] = (),
    ) -> None:
        super().__init__(index, config, models or Models.open(config), metadata)
        index.refuse_mismatch(config, self.encoder)

    def texts_of(self, query: Query) -> list[str]:
        """The query, then each window of the passages it brings."""
        passages = query.passages or ()
        windows = self.encoder.windows_of([passages[i] for i in with_text(passages)])
        return [query.text, *(text for of_passage in windows for text in of_passage)]

    def candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The passages of the query, else the candidates that the index gives."""
        if query.passages is None:
            return self.search(query, vectors[query.text], query.without)
        return self._caller_candidates(query, vectors)

    def search(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Candidates:
        """The candidates that the index gives."""
        c, index = self.config, self.index
        if not without:
            stage = index.search(query.text, vector, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k)
        else:
            pool = c.pool + len(without)
            unfiltered = index.search(query.text, vector, pool=pool, count=2 * pool, rrf_k=c.rrf_k)
            removed = np.array(
                [index.passage(row).doc_id in without for row in unfiltered.rows],
                dtype=np.bool_,
            )
            stage = fused_without(
                unfiltered, removed, pool=c.pool, count=c.candidates, rrf_k=c.rrf_k
            )
        return self.ranked_candidates(query, tuple(index.passage(row) for row in stage.rows), stage)

    def _caller_candidates(self, query: Query, vectors: Mapping[str, Vectors]) -> Candidates:
        """The passages of the query that hold any text, ranked by the same two stages.

        Logits that came with equal passages are the highest of theirs.
        """
        provided, vector = query.passages or (), vectors[query.text]
        rows = with_text(provided)
        passages = [provided[i] for i in rows]
        nearest = [
            cosines(np.stack([vectors[text] for text in of_passage]), vector).max()
            for of_passage in self.encoder.windows_of(passages)
        ]
        if query.logits is not None:
            _, group = distinct(provided)
            query = replace(query, logits=highest_of_equal(query.logits, group))
        found = self._from_caller(query, passages, np.array(nearest, dtype=np.float64))
        stage = replace(found.first_stage, rows=rows[found.first_stage.rows])
        return replace(found, first_stage=stage)

    def best_of_stages(self, text: str, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of each first stage, each passage once, best fused first."""
        (vector,), index = self.encode([text]), self.index
        stage = index.search(text, vector, pool=count, count=2 * count, rrf_k=self.config.rrf_k)
        return tuple(index.passage(row) for row in stage.rows)

    def as_from_caller(self, candidates: Candidates, count: int) -> Candidates:
        """The candidates as if the caller had provided the first `count` of them."""
        return self._from_caller(
            candidates.query,
            candidates.passages[:count],
            candidates.first_stage.dense[:count],
        )

    def _from_caller(self, query: Query, passages: Sequence[Passage], near: Floats) -> Candidates:
        stage = rank_passages(query.text, passages, near, self.index, rrf_k=self.config.rrf_k)
        return self.ranked_candidates(query, tuple(passages[row] for row in stage.rows), stage)

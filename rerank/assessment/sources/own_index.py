"""Our own index, or none: the passages that callers bring are ranked by the same two stages."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Self

import numpy as np

from rerank.assessment.metadata_features import Metadata
from rerank.assessment.model_folder import INDEX, ModelFolder
from rerank.assessment.sources.source import Source
from rerank.config import Config
from rerank.errors import FilterError, InputError, MissingExtraError
from rerank.retrieval.dense import Encoder, Vectors
from rerank.retrieval.fusion import fused_without
from rerank.retrieval.index import Index, NoIndex, SearchableIndex
from rerank.types import Candidates, Floats, ListKind, Passage, Query

NOTHING_TO_SEARCH = (
    "this model has no index to search; give it passages to rerank, or make a model of your "
    "corpus: `rerank model init CORPUS --out MODEL`"
)
SCORES_ITSELF = (
    "this model scores passages itself: give it passages without the scores of other stages, or "
    "calibrate such lists (`rerank calibrate lists.jsonl`)"
)


class OwnIndex(Source):
    """Our own index, or any other `SearchableIndex`."""

    takes_corpus = True
    searches = True

    def __init__(self, index: SearchableIndex, config: Config, metadata: Metadata = ()) -> None:
        super().__init__(index, config, metadata)
        self.folder = index.folder
        self.corpus = getattr(index, "corpus", None)

    @classmethod
    def open(cls, files: ModelFolder, config: Config, kind: ListKind, metadata: Metadata) -> Self:
        """The index of a model folder, checked."""
        try:
            index = Index(files.path / INDEX)
            index.check()
        except MissingExtraError:
            raise
        except Exception as error:  # broken arrays fail in many ways
            raise InputError(f"{files.path}: its index cannot be used: {error}") from None
        return cls(index, config, metadata)

    @classmethod
    def refusal(cls, kind: ListKind) -> str:
        """It takes no lists with scores."""
        return SCORES_ITSELF

    def refuse_mismatch(self, encoder: Encoder) -> None:
        """Refuse an encoder or a configuration that the index was not made with."""
        self.index.refuse_mismatch(self.config, encoder)

    def candidates(self, query: Query, vector: Vectors | None, near: Floats) -> Candidates:
        """The passages of the query, else the candidates that the index gives."""
        if query.passages is not None:
            return self.of_caller(query, near)
        assert vector is not None, "a search embeds the query"
        return self.search(query, vector, query.without)

    def search(self, query: Query, vector: Vectors, without: Set[str] = frozenset()) -> Candidates:
        """The candidates that the index gives."""
        c, index = self.config, self.index
        asked: dict[str, Any] = {"rrf_k": c.rrf_k}
        if query.where:
            if not hasattr(index, "columns"):
                raise FilterError("this model's own kind of index takes no filter")
            asked["where"] = query.where
        sizes: dict[str, Any] = {"pool": c.pool, "count": c.candidates}
        if without:
            pool = c.pool + len(without)
            stage = index.search(query.text, vector, pool=pool, count=2 * pool, **asked)
            removed = [index.passage(row).doc_id in without for row in stage.rows]
            removed_rows = np.array(removed, dtype=np.bool_)
            stage = fused_without(stage, removed_rows, **sizes, rrf_k=c.rrf_k)
        else:
            stage = index.search(query.text, vector, **sizes, **asked)
        return self.ranked_candidates(query, tuple(index.passage(row) for row in stage.rows), stage)

    def best_of_stages(self, text: str, vector: Vectors, count: int) -> tuple[Passage, ...]:
        """The `count` best passages of BM25 and of the bi-encoder each."""
        rrf_k = self.config.rrf_k
        stage = self.index.search(text, vector, pool=count, count=2 * count, rrf_k=rrf_k)
        return tuple(self.index.passage(row) for row in stage.rows)


class CallerPassages(Source):
    """No index: the model ranks the passages that callers bring."""

    takes_corpus = True

    def __init__(self, config: Config) -> None:
        super().__init__(NoIndex(config.words_language), config)

    @classmethod
    def refusal(cls, kind: ListKind) -> str:
        """There is nothing to search."""
        return NOTHING_TO_SEARCH

    def check(self, query: Query) -> None:
        """Refuse a query without passages."""
        if query.passages is None:
            raise InputError(NOTHING_TO_SEARCH)

    def candidates(self, query: Query, vector: Vectors | None, near: Floats) -> Candidates:
        """The passages of the query."""
        return self.of_caller(query, near)

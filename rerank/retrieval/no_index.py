"""A first stage without a corpus: it ranks the passages that callers provide, and finds none."""

from __future__ import annotations

from pathlib import Path

from rerank.config import Config
from rerank.errors import InputError
from rerank.retrieval.dense import Encoder, Vectors
from rerank.types import FirstStage, Passage

NOTHING_TO_SEARCH = (
    "this model has no index to search; give it passages to rerank, or make a model of your "
    "corpus: `rerank init CORPUS --out MODEL`"
)
USUAL_IDF = 4.0  # of a query's word, as no corpus says how rare it is


class NoIndex:
    """The `SearchableIndex` of a model that has nothing to search."""

    folder = Path()

    def __init__(self, language: str) -> None:
        self.language = language

    def __len__(self) -> int:
        """No passage."""
        return 0

    def search(
        self, query: str, vector: Vectors, *, pool: int, count: int, rrf_k: int
    ) -> FirstStage:
        """Refuse: there is nothing to search.

        Raises:
            InputError: always.
        """
        raise InputError(NOTHING_TO_SEARCH)

    def passage(self, row: int, /) -> Passage:
        """Refuse: there are no rows.

        Raises:
            IndexError: always.
        """
        raise IndexError(row)

    def idf(self, word: str, /) -> float:
        """The same for every word."""
        return USUAL_IDF

    def refuse_mismatch(self, config: Config, encoder: Encoder) -> None:
        """Nothing to check: there is no index that could differ."""

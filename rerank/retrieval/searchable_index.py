"""The methods that the pipeline needs of an index: any class that has them can be one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rerank.config import Config
from rerank.data.words import Lexicon
from rerank.retrieval.dense import Encoder, Vectors
from rerank.types import FirstStage, Passage


class SearchableIndex(Lexicon, Protocol):
    """A corpus that can be searched by a query's words and by its vector."""

    folder: Path  # which is copied into a model folder

    def __len__(self) -> int:
        """Count of passages."""

    def search(
        self, query: str, vector: Vectors, *, pool: int, count: int, rrf_k: int
    ) -> FirstStage:
        """The `count` best passages of the `pool` best of each stage, best fused first."""

    def passage(self, row: int, /) -> Passage:
        """The passage at a row, as `FirstStage.rows` names it."""

    def refuse_mismatch(self, config: Config, encoder: Encoder) -> None:
        """Raise an InputError if it was made for another configuration or encoder."""


def passages_of(index: SearchableIndex) -> Iterator[Passage]:
    """All passages of an index, in the order of their rows."""
    return map(index.passage, range(len(index)))

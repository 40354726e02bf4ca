"""Chunks: neighbouring rows of an input, few enough for memory, and what any input gives of them.

A chunk depends on the file alone, not on where reading began: the same rows are scored together
however often a run was stopped. It knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rerank.batch.rows import Row

CHUNK_ROWS = 64  # rows of a chunk, at most
CHUNK_BYTES = 2**23  # bytes of a chunk's lines, at most, but for the last line of it
BUFFER = 2**20


class Position(NamedTuple):
    """A place between two rows: how many lines (rows of a Parquet) lie before it, and bytes."""

    line: int = 0
    byte: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Neighbouring rows of the input, as they lie there; `RowSource.rows` decodes them, once."""

    start: Position
    end: Position
    raw: Any


class RowSource(Protocol):
    """An open input."""

    total: int  # lines, or rows of a Parquet; blank lines count

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """All chunks from `start` on, where an earlier chunk ended; one at a time in memory."""

    def starts(self, start: Position) -> Iterator[Position]:
        """Where these chunks start; nothing is decoded."""

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there, which `starts` has named; cheapest in their order."""

    def rows(self, chunk: Chunk) -> Iterator[Row]:
        """The rows of the latest chunk, once, one at a time: what is to be scored, what cannot."""

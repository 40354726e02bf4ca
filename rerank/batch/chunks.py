"""Chunks: neighbouring rows of an input, few enough for memory; and the interface of inputs.

Chunks depend on the file alone, not on where reading began: the same rows are scored together
however often a run was stopped. It knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rerank.batch.rows import Row

CHUNK_ROWS = 64  # most rows of a chunk
CHUNK_BYTES = 2**23  # most bytes of a chunk's lines, without its last line
BUFFER = 2**20


class Position(NamedTuple):
    """A position between two rows: the number of lines (or Parquet rows) and bytes before it."""

    line: int = 0
    byte: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Neighbouring rows of the input, not decoded; `RowReader.rows` decodes them, once."""

    start: Position
    end: Position
    raw: Any


class RowReader(Protocol):
    """An open input."""

    total: int  # lines, or Parquet rows; blank lines count

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """All chunks from `start` on, which is the end of a chunk; one at a time in memory."""

    def starts(self, start: Position) -> Iterator[Position]:
        """Where these chunks start; it decodes nothing."""

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there, as `starts` returned it; cheapest in their order."""

    def rows(self, chunk: Chunk) -> Iterator[Row]:
        """The rows of the latest chunk, once, one at a time: queries and rejected rows."""

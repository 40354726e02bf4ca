"""One row of an input: its query, or why it is rejected; and chunks of neighbouring rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rerank.data.records import FIELDS, id_of, read_id, read_query
from rerank.errors import InputError
from rerank.types import Query


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that cannot be scored: its line (from 1), the reason, and its id if it has one.

    `part`: of a folder of part files, the file and the line in it; `line` counts through all.
    """

    line: int
    reason: str
    query_id: str | None = None
    part: tuple[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The line of the file of rejected rows."""
        of_part = self.part and {"part": self.part[0], "line_in_part": self.part[1]}
        named = {} if self.query_id is None else {"_id": self.query_id}
        return {"line": self.line, **(of_part or {}), **named, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A row that can be scored: its line (from 1), and its query; `part` as of a rejected one."""

    line: int
    query: Query
    part: tuple[str, int] | None = None

    def rejected(self, reason: str) -> RejectedRow:
        """The row, rejected after all."""
        return RejectedRow(self.line, reason, self.query.query_id, self.part)


Row = QueryRow | RejectedRow


class Position(NamedTuple):
    """How many lines (or rows) are before it, through all parts; of JSON, bytes of its part too."""

    line: int = 0
    byte: int = 0


class Chunk(NamedTuple):
    """Neighbouring rows of the input, which are read and decoded one at a time, once.

    Chunks depend on the files alone, not on where reading began.
    """

    start: Position
    end: Position
    rows: Iterator[Row]


@dataclass(frozen=True, slots=True)
class RowParser:
    """Parses rows; of a row's metadata it reads the key that names the segment, if there is one."""

    segment_by: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that are read."""
        return tuple(name for name in FIELDS if name != "metadata" or self.segment_by)

    def __call__(self, line: int, row: Mapping[str, Any]) -> Row:
        """The query of a row (see `rerank.data.records.read_query`), or why it has none.

        Ids may repeat: each row is answered separately.
        """
        query_id = None
        try:
            query_id = read_id(row, id_of(row))
            return QueryRow(line, read_query(row, segment_by=self.segment_by))
        except InputError as error:
            return RejectedRow(line, str(error), query_id)

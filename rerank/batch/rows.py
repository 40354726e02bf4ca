"""The rows of an input: files read in chunks; the query of each row, or why it is rejected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.lines import BOM, any_rows, read_object, unpacked
from rerank.data.records import LONGEST_RECORD, id_of, read_id, read_query
from rerank.errors import InputError
from rerank.types import Query

CHUNK_ROWS = 64


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
    """A row that can be scored; `line` and `part` as of a rejected one."""

    line: int
    query: Query
    part: tuple[str, int] | None = None

    def rejected(self, reason: str) -> RejectedRow:
        """The row, rejected after all."""
        return RejectedRow(self.line, reason, self.query.query_id, self.part)


Row = QueryRow | RejectedRow


class Chunk(NamedTuple):
    """Neighbouring rows of the input, which are read and decoded one at a time, once.

    Chunks depend on the files alone, not on where reading began. `start` rows are before the first
    one, through all parts, and `end` before the next chunk.
    """

    start: int
    end: int
    rows: Iterator[Row]


@dataclass(eq=False)
class Part(ABC):
    """A file of an input, whose rows are found by their number, and read one at a time."""

    path: Path
    segment_by: str | None  # as in `rerank.data.records.read_query`
    before: int  # rows of earlier files
    name: str  # in the folder of the input; "" if the input is one file
    total: int = 0  # rows; the blank lines of JSONL count

    @abstractmethod
    def read(self, begin: int) -> Iterator[Any]:
        """What there is of each row, not decoded, from a row on that `begin` has returned."""

    def begin(self, start: int) -> int:
        """How many rows are before the one at which reading begins, to reach that after `start`."""
        return self.before

    def decode(self, line: int, raw: Any) -> Row:
        """The query of a row from what was read of it, or why it has none."""
        return RejectedRow(line, raw) if isinstance(raw, str) else self.parse(line, raw)

    def parse(self, line: int, row: Mapping[str, Any]) -> Row:
        """The query of a record, or why it has none."""
        query_id = None
        try:
            query_id = read_id(row, id_of(row))
            return QueryRow(line, read_query(row, segment_by=self.segment_by))
        except InputError as error:
            return RejectedRow(line, str(error), query_id)

    def chunks(self, start: int) -> Iterator[Chunk]:
        """Chunks of 64 rows after `start` rows, which is before the file or the end of a chunk."""
        first, end = max(start, self.before), self.before + self.total
        begin = self.begin(first)
        raw = islice(self.read(begin), first - begin, None)
        for line in self.starts(start):
            after = min(line + CHUNK_ROWS, end)
            of_chunk = islice(raw, after - line)
            yield Chunk(line, after, self.rows(enumerate(of_chunk, line + 1)))
            for _ in of_chunk:  # skip what was not read
                pass

    def starts(self, start: int) -> range:
        """Where these chunks start; it reads nothing."""
        return range(max(start, self.before), self.before + self.total, CHUNK_ROWS)

    def rows(self, numbered: Iterable[tuple[int, Any]]) -> Iterator[Row]:
        """The rows, decoded one at a time, from their lines and what was read of them."""
        for line, raw in numbered:
            row = self.decode(line, raw)
            yield replace(row, part=(self.name, line - self.before)) if self.name else row


class JsonLines(Part):
    """Lines that end with a line feed; blank ones are skipped. It holds one line in memory."""

    def read(self, begin: int) -> Iterator[bytes | None]:
        """Each line; None if it is too long."""
        with unpacked(self.path) as stream:
            start = BOM
            while data := stream.readline(LONGEST_RECORD + 1):
                if len(data) <= LONGEST_RECORD or data.endswith(b"\n"):
                    yield data.removeprefix(start)
                else:
                    while (more := stream.readline(LONGEST_RECORD)) and not more.endswith(b"\n"):
                        pass
                    yield None
                start = b""

    def rows(self, numbered: Iterable[tuple[int, bytes | None]]) -> Iterator[Row]:
        """The rows without the blank lines."""
        return super().rows((line, d) for line, d in numbered if d is None or d.strip())

    def decode(self, line: int, raw: bytes | None) -> Row:
        """The query of a line, or why it cannot be read; it never raises."""
        if raw is None:
            return RejectedRow(line, f"the line has more than {LONGEST_RECORD} bytes")
        try:
            return self.parse(line, read_object(raw))
        except InputError as error:
            return RejectedRow(line, str(error))


@dataclass(eq=False)
class SeparatedRows(Part):
    """Rows with separators."""

    def __post_init__(self) -> None:
        self.total = sum(1 for _ in any_rows(self.path))

    def read(self, begin: int) -> Iterator[Mapping[str, Any] | str]:
        """The record of each row, or why it is none."""
        return (row for _, row in any_rows(self.path))

"""The rows of an input: files read in chunks, few enough rows for memory, and the query of each
row, or why it is rejected. It knows nothing of models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from rerank.data.lines import BOM, any_rows, read_object, unpacked
from rerank.data.records import FIELDS, LONGEST_RECORD, id_of, read_id, read_query
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
    """A row that can be scored: its line (from 1), and its query; `part` as of a rejected one."""

    line: int
    query: Query
    part: tuple[str, int] | None = None

    def rejected(self, reason: str) -> RejectedRow:
        """The row, rejected after all."""
        return RejectedRow(self.line, reason, self.query.query_id, self.part)


Row = QueryRow | RejectedRow


class Chunk(NamedTuple):
    """Neighbouring rows of the input, which are read and decoded one at a time, once.

    Chunks depend on the files alone, not on where reading began. `start` is how many rows are
    before the first one, through all parts, and `end` how many are before the next chunk.
    """

    start: int
    end: int
    rows: Iterator[Row]


@dataclass(frozen=True, slots=True)
class RowParser:
    """Parses rows; of a row's metadata it reads the key that names the segment, if there is one.

    None: all of the metadata is read.
    """

    segment_by: str | None = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that are read."""
        return tuple(name for name in FIELDS if name != "metadata" or self.segment_by != "")

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


class Part(ABC):
    """A file of an input, which follows `before` rows of earlier files and has `total`.

    Rows are found by their number, and read one at a time; the blank lines of JSONL count. `name`
    is the part's in its folder; "" if the input is one file.
    """

    def __init__(self, path: Path, parse: RowParser, before: int, name: str, total: int) -> None:
        self.path = path
        self.parse = parse
        self.before = before
        self.name = name
        self.total = total

    @abstractmethod
    def read(self, begin: int) -> Iterator[Any]:
        """What there is of each row, not decoded, from a row on that `begin` has returned."""

    def begin(self, start: int) -> int:
        """How many rows are before the one at which reading begins, to reach that after `start`."""
        return self.before

    def decode(self, line: int, raw: Any) -> Row:
        """The query of a row from what was read of it: its fields, or why it has none."""
        return RejectedRow(line, raw) if isinstance(raw, str) else self.parse(line, raw)

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
            for number in count():
                if (data := _line(stream)) == b"":
                    return
                yield data.removeprefix(BOM) if data and not number else data

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


class SeparatedRows(Part):
    """Rows with separators."""

    def __init__(self, path: Path, parse: RowParser, before: int, name: str) -> None:
        super().__init__(path, parse, before, name, sum(1 for _ in any_rows(path)))

    def read(self, begin: int) -> Iterator[Mapping[str, Any] | str]:
        """The record of each row, or why it is none."""
        return (row for _, row in any_rows(self.path))


def _line(stream: IO[bytes]) -> bytes | None:
    """The next line, None if it is too long; empty at the end."""
    data = stream.readline(LONGEST_RECORD + 1)
    if len(data) <= LONGEST_RECORD or data.endswith(b"\n"):
        return data
    while (block := stream.readline(LONGEST_RECORD)) and not block.endswith(b"\n"):
        pass
    return None

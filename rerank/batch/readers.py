"""The files of an input, read in chunks: few enough rows for memory. It knows nothing of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rerank.batch.rows import Chunk, Position, RejectedRow, Row, RowParser
from rerank.data.lines import BOM, BUFFER, any_rows, is_packed, read_object, unpacked
from rerank.data.records import LONGEST_RECORD
from rerank.errors import InputError

CHUNK_ROWS = 64  # most rows of a chunk
CHUNK_BYTES = 2**23  # most bytes of a chunk's lines, without its last line


class Part(ABC):
    """A file of an input, which follows `before` lines (or rows) of earlier files and has `total`.

    `name` is the part's in its folder; "" if the input is one file.
    """

    def __init__(self, path: Path, parse: RowParser, before: int, name: str, total: int) -> None:
        self.path = path
        self.parse = parse
        self.before = before
        self.name = name
        self.total = total  # blank lines count

    @abstractmethod
    def chunks(self, start: Position) -> Iterator[Chunk]:
        """The chunks from `start` on, which is before the file or the end of a chunk."""

    @abstractmethod
    def starts(self, start: Position) -> Iterator[Position]:
        """Where these chunks start; it decodes nothing."""

    @abstractmethod
    def begin(self, start: Position) -> int:
        """The line before which reading begins in order to reach a position of the file."""

    @abstractmethod
    def decode(self, line: int, raw: Any) -> Row:
        """The row, from what was read of it."""

    def rows(self, numbered: Iterable[tuple[int, Any]]) -> Iterator[Row]:
        """The rows, decoded one at a time, from their lines and what was read of them."""
        for line, raw in numbered:
            row = self.decode(line, raw)
            yield replace(row, part=(self.name, line - self.before)) if self.name else row


class JsonLines(Part):
    """Lines that end with a line feed; blank ones are skipped.

    It holds the lines of one chunk in memory: 8 MiB and one line of at most 8 MiB.
    """

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """Chunks of at most 64 lines, blank ones included, and of 8 MiB plus at most one line."""
        end = start if start.line > self.before else Position(self.before)
        with unpacked(self.path) as stream:
            if stream.seekable():
                stream.seek(end.byte)
            else:
                left = end.byte
                while left and (block := stream.read(min(left, BUFFER))):
                    left -= len(block)
            while True:
                start, lines, held = end, list[tuple[int, bytes | None]](), 0
                while end.line - start.line < CHUNK_ROWS and held < CHUNK_BYTES:
                    data, length = _line(stream)
                    if not length:
                        break
                    if data is not None and not end.byte:
                        data = data.removeprefix(BOM)
                    end = Position(end.line + 1, end.byte + length)
                    if data is None or data.strip():
                        lines.append((end.line, data))
                        held += len(data or b"")
                if end == start:
                    return
                yield Chunk(start, end, self.rows(lines))

    def starts(self, start: Position) -> Iterator[Position]:
        """Where the chunks start; it reads the lines to find out."""
        return (chunk.start for chunk in self.chunks(start))

    def begin(self, start: Position) -> int:
        """There, or at the first line of a packed file."""
        return self.before if is_packed(self.path) else start.line

    def decode(self, line: int, raw: bytes | None) -> Row:
        """The query of a line, or why it cannot be read; it never raises."""
        if raw is None:
            return RejectedRow(line, f"the line has more than {LONGEST_RECORD} bytes")
        try:
            row = read_object(raw)
        except InputError as error:
            return RejectedRow(line, str(error))
        return self.parse(line, row)


class NumberedRows(Part):
    """Rows that are found by their number; they are read one at a time."""

    @abstractmethod
    def read(self, begin: int) -> Iterator[Any]:
        """What there is of each row, not decoded, from a line on that `begin` has returned."""

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """Chunks of 64 rows."""
        first, end = max(start.line, self.before), self.before + self.total
        begin = self.begin(Position(first))
        raw = islice(self.read(begin), first - begin, None)
        for line in range(first, end, CHUNK_ROWS):
            after = min(line + CHUNK_ROWS, end)
            of_chunk = islice(raw, after - line)
            rows = self.rows(enumerate(of_chunk, line + 1))
            yield Chunk(Position(line), Position(after), rows)
            for _ in of_chunk:  # skip what was not read
                pass

    def starts(self, start: Position) -> Iterator[Position]:
        """Where the chunks start."""
        end = self.before + self.total
        return map(Position, range(max(start.line, self.before), end, CHUNK_ROWS))


class SeparatedRows(NumberedRows):
    """Rows with separators; they are read again from the first one."""

    def __init__(self, path: Path, parse: RowParser, before: int, name: str) -> None:
        super().__init__(path, parse, before, name, sum(1 for _ in any_rows(path)))

    def read(self, begin: int) -> Iterator[Mapping[str, Any] | str]:
        """The record of each row, or why it is none."""
        return (row for _, row in any_rows(self.path))

    def begin(self, start: Position) -> int:
        """The first row."""
        return self.before

    def decode(self, line: int, raw: Mapping[str, Any] | str) -> Row:
        """The query of a row, or why it has none."""
        return RejectedRow(line, raw) if isinstance(raw, str) else self.parse(line, raw)


class Reader:
    """The files of an input as one; lines are counted through all of them."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.total = sum(part.total for part in parts)
        self._parts = parts
        self._ahead = self.chunks(Position())
        self._next = Position()

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """All chunks from `start` on, which is the end of a chunk; none is of two files."""
        return (chunk for part in self._after(start) for chunk in part.chunks(start))

    def starts(self, start: Position) -> Iterator[Position]:
        """Where these chunks start; it decodes nothing."""
        return (position for part in self._after(start) for position in part.starts(start))

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there, as `starts` returned it; cheapest in their order."""
        (part, *_) = self._after(start)
        if start.line < self._next.line or part.begin(start) > self._next.line:
            self._ahead = self.chunks(start)
        chunk = next(c for c in self._ahead if c.start.line == start.line)
        self._next = chunk.end
        return chunk

    def _after(self, start: Position) -> Sequence[Part]:
        """The files that hold anything from a position on."""
        ends = bisect_right(self._parts, start.line, key=lambda part: part.before + part.total)
        return self._parts[ends:]


def _line(stream: IO[bytes]) -> tuple[bytes | None, int]:
    """The next line, None if it is too long, and its length in bytes; 0 at the end."""
    data = stream.readline(LONGEST_RECORD + 1)
    length = len(data)
    if length <= LONGEST_RECORD or data.endswith(b"\n"):
        return data, length
    while block := stream.readline(LONGEST_RECORD):
        length += len(block)
        if block.endswith(b"\n"):
            break
    return None, length

"""The files of an input, read in chunks: few enough rows for memory. It knows nothing of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
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

    def starts(self, start: Position) -> Iterator[Position]:
        """Where these chunks start; it decodes nothing."""
        return (chunk.start for chunk in self.chunks(start))

    @abstractmethod
    def begin(self, start: Position) -> int:
        """The line before which reading begins in order to reach a position of the file."""

    def decode(self, line: int, raw: Any) -> Row:
        """The query of a row from what was read of it: its fields, or why it has none."""
        return RejectedRow(line, raw) if isinstance(raw, str) else self.parse(line, raw)

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

    def begin(self, start: Position) -> int:
        """There, or at the first line of a packed file."""
        return self.before if is_packed(self.path) else start.line

    def decode(self, line: int, raw: bytes | None) -> Row:
        """The query of a line, or why it cannot be read; it never raises."""
        if raw is None:
            return RejectedRow(line, f"the line has more than {LONGEST_RECORD} bytes")
        try:
            return self.parse(line, read_object(raw))
        except InputError as error:
            return RejectedRow(line, str(error))


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
            yield Chunk(Position(line), Position(after), self.rows(enumerate(of_chunk, line + 1)))
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

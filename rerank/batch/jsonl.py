"""JSONL inputs: lines of bounded length, each decoded separately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

from rerank.batch.chunks import CHUNK_BYTES, CHUNK_ROWS, Chunk, Position
from rerank.batch.rows import RejectedRow, Row, RowParser
from rerank.data.records import LONGEST_RECORD
from rerank.storage.files import RepeatedKeyError, loads

BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line that is not blank: its number, from 1, and its bytes, None if it is too long."""

    number: int
    data: bytes | None


class JsonlReader:
    """An open JSONL file; lines end with a line feed, and blank ones are skipped.

    It holds the lines of one chunk in memory: 8 MiB and one line of at most 8 MiB.
    """

    def __init__(self, file: IO[bytes], total: int, parse: RowParser) -> None:
        self.total = total
        self._file = file
        self._parse = parse

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """Chunks of at most 64 lines, blank ones included, and of 8 MiB plus at most one line."""
        self._file.seek(start.byte)
        end = start
        while True:
            start, lines, held = end, list[Line](), 0
            while end.line - start.line < CHUNK_ROWS and held < CHUNK_BYTES:
                data, length = self._line()
                if not length:
                    break
                end = Position(end.line + 1, end.byte + length)
                if data is None or data.strip():
                    lines.append(Line(end.line, data))
                    held += len(data or b"")
            if end == start:
                return
            yield Chunk(start, end, lines)

    def starts(self, start: Position) -> Iterator[Position]:
        """Where the chunks start; it reads the lines to find out."""
        return (chunk.start for chunk in self.chunks(start))

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there."""
        return next(self.chunks(start))

    def _line(self) -> tuple[bytes | None, int]:
        """The next line, None if it is too long, and its length in bytes; 0 at the end."""
        data = self._file.readline(LONGEST_RECORD + 1)
        length = len(data)
        if length <= LONGEST_RECORD or data.endswith(b"\n"):
            return data, length
        while block := self._file.readline(LONGEST_RECORD):
            length += len(block)
            if block.endswith(b"\n"):
                break
        return None, length

    def rows(self, chunk: Chunk) -> Iterator[Row]:
        """The chunk's lines, decoded one at a time."""
        return (decode(line, self._parse) for line in chunk.raw)


def decode(line: Line, parse: RowParser) -> Row:
    """The query of a line, or why it cannot be read; it never raises."""
    if line.data is None:
        return RejectedRow(line.number, f"the line has more than {LONGEST_RECORD} bytes")
    data = line.data.removeprefix(BOM) if line.number == 1 else line.data
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return RejectedRow(line.number, f"not UTF-8 (byte {error.start + 1} of the line)")
    try:
        row = loads(text, constants=True)  # a bad number is told by its field
    except RecursionError:
        return RejectedRow(line.number, "not JSON that can be read: it is nested too deep")
    except RepeatedKeyError as error:
        return RejectedRow(line.number, str(error))
    except ValueError as error:
        return RejectedRow(line.number, f"not JSON ({error})")
    return parse(line.number, row)

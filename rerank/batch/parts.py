"""Inputs that are not one plain file: packed lines, rows with separators, folders of part files."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rerank.batch.chunks import BUFFER, CHUNK_ROWS, Chunk, Position, RowReader
from rerank.batch.rows import RejectedRow, Row, RowParser
from rerank.data.containers import unpacked
from rerank.data.lines import Problems, rows
from rerank.errors import InputError


class Unpacked(io.RawIOBase):
    """The unpacked bytes of a file; seeking forwards reads them, seeking backwards begins anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks = self._read()
        self._held = b""
        self._at = 0

    def _read(self) -> Iterator[bytes]:
        try:
            with unpacked(self._path) as stream:
                while block := stream.read(BUFFER):
                    yield block
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{self._path}: cannot be unpacked ({error})") from None

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        self._held = self._held or next(self._blocks, b"")
        count = min(len(buffer), len(self._held))
        buffer[:count], self._held = self._held[:count], self._held[count:]
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position from the start, or from the present one."""
        offset += self._at if whence == io.SEEK_CUR else 0
        if offset < self._at:
            self._blocks, self._held, self._at = self._read(), b"", 0
        while self._at < offset and self.readinto(
            memoryview(bytearray(offset - self._at))[:BUFFER]
        ):
            pass
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at


class _Rejected(Problems):
    """Collects the lines that are no records, until they are taken."""

    def take(self) -> list[str]:
        """Why each line since the last call is no record."""
        taken, self.messages = self.messages, []
        return [message.partition(": ")[2] for message in taken]


class SeparatedReader:
    """An open file of rows with separators; they are read again from its first one to go back."""

    def __init__(self, path: Path, parse: RowParser) -> None:
        self._path = path
        self._parse = parse
        self.total = sum(1 for _ in self._values())
        self._ahead = self.chunks(Position())
        self._next = Position()

    def _values(self) -> Iterator[object]:
        """The record of each row, or why it is none."""
        rejected = _Rejected()
        for _, row in rows(self._path, rejected):
            yield from rejected.take()
            yield row
        yield from rejected.take()

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """Chunks of 64 rows."""
        line, held = 0, list[object]()
        for value in self._values():
            line += 1
            if line > start.line:
                held.append(value)
            if len(held) == CHUNK_ROWS:
                yield Chunk(Position(line - len(held)), Position(line), held)
                held = []
        if held:
            yield Chunk(Position(line - len(held)), Position(line), held)

    def starts(self, start: Position) -> Iterator[Position]:
        """Where the chunks start."""
        return (Position(line) for line in range(start.line, self.total, CHUNK_ROWS))

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there."""
        if start != self._next:
            self._ahead = self.chunks(start)
        chunk = next(self._ahead)
        self._next = chunk.end
        return chunk

    def rows(self, chunk: Chunk) -> Iterator[Row]:
        """The chunk's rows."""
        for line, value in enumerate(chunk.raw, chunk.start.line + 1):
            yield RejectedRow(line, value) if isinstance(value, str) else self._parse(line, value)


class PartsReader:
    """The part files of a folder as one input; lines are counted through all of them.

    `opened` gives the reader of the part with this number, and closes that of another.
    """

    def __init__(self, totals: Sequence[int], opened: Callable[[int], RowReader]) -> None:
        self.total = sum(totals)
        self._totals = totals
        self._opened = opened

    def _parts(self, start: Position) -> Iterator[tuple[int, int, Position]]:
        """(number, lines before it, where to begin in it) of each part from a position on."""
        first = 0
        for number, total in enumerate(self._totals):
            if first + total > start.line:
                inside = Position(start.line - first, start.byte) if start.line > first else None
                yield number, first, inside or Position()
            first += total

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """The chunks of each part; none is of two parts."""
        for number, first, inside in self._parts(start):
            reader = self._opened(number)
            for chunk in reader.chunks(inside):
                yield _moved(chunk, first, reader)

    def starts(self, start: Position) -> Iterator[Position]:
        """Where the chunks start."""
        for number, first, inside in self._parts(start):
            for line, byte in self._opened(number).starts(inside):
                yield Position(line + first, byte)

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there."""
        number, first, inside = next(self._parts(start))
        reader = self._opened(number)
        return _moved(reader.at(inside), first, reader)

    def rows(self, chunk: Chunk) -> Iterator[Row]:
        """The chunk's rows, with their lines through all parts."""
        reader, inner = chunk.raw
        first = chunk.start.line - inner.start.line
        return (replace(row, line=row.line + first) for row in reader.rows(inner))


def _moved(chunk: Chunk, lines: int, reader: RowReader) -> Chunk:
    start, end = chunk.start, chunk.end
    return Chunk(
        Position(start.line + lines, start.byte),
        Position(end.line + lines, end.byte),
        (reader, chunk),
    )

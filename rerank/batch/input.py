"""The input of a rescoring: opens a file by its ending, and refuses a file that changes."""

from __future__ import annotations

import hashlib
import io
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rerank.batch.chunks import BUFFER, RowReader
from rerank.batch.parts import PartsReader, SeparatedReader, Unpacked
from rerank.batch.rows import RowParser
from rerank.data.containers import (
    GZIP,
    HEAD,
    JSONL,
    PARQUET,
    SEPARATED,
    ZSTD,
    ending,
    foreign,
    parts_of,
)
from rerank.errors import InputError, optional

ENDINGS = (*PARQUET, *JSONL, "")  # of an output


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of an input: its content, and when its files were last written to."""

    sha256: str  # of the unpacked lines, or of Parquet as it is
    size: int
    lines: tuple[int, ...]  # of the text of each part, blank ones too
    modified: tuple[tuple[int, int], ...]  # bytes and nanoseconds of each part

    def check(self, path: Path, parts: list[Path]) -> None:
        """Refuse files that were changed since.

        Raises:
            InputError: one has another size or time.
        """
        if _states(parts) != self.modified:
            raise InputError(f"{path} was changed while it was read; start again when it is whole")


def is_parquet(path: Path) -> bool:
    """Whether the ending of an output is one of Parquet; else it is one of JSONL.

    Raises:
        InputError: it is neither.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    return path.suffix.lower() in PARQUET


@contextmanager
def open_input(
    path: Path, parse: RowParser, identified: FileIdentity | None = None
) -> Iterator[Input]:
    """Open an input, and close it at the end; it is read to identify it, unless `identified`.

    It is any file of `rerank.data.containers`, or a folder of part files of one kind.

    Raises:
        InputError: not a regular file, of another kind than its name says, not readable as Parquet,
            or Parquet without `_id` and `query` (or `text`); it has no row; or it was changed since
            it was identified.
    """
    parts = parts_of(path)
    kinds = (*PARQUET, *JSONL, *SEPARATED, "")
    if ending(parts[0]) not in kinds and not parts[0].name.startswith("part-"):
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    if identified is not None:
        identified.check(path, parts)
    identity = identified or _identify(parts)
    with ExitStack() as stack:
        held: dict[int, tuple[RowReader, ExitStack]] = {}

        def opened(number: int) -> RowReader:
            """The reader of a part; that of another one is closed."""
            if number not in held:
                for _, files in held.values():
                    files.close()
                held.clear()
                files = stack.enter_context(ExitStack())
                held[number] = _reader(parts[number], parse, identity.lines[number], files), files
            return held[number][0]

        if len(parts) == 1:
            reader = opened(0)
        else:
            totals = [opened(number).total for number in range(len(parts))]
            reader = PartsReader(totals, opened)
        if not reader.total:
            raise InputError(f"{path}: holds no query")
        yield Input(path, parts, reader, identity)


def _reader(path: Path, parse: RowParser, lines: int, files: ExitStack) -> RowReader:
    if ending(path) in SEPARATED:
        return SeparatedReader(path, parse)
    file = files.enter_context(_open(path))
    if ending(path) in PARQUET:
        with optional():
            from rerank.batch.parquet import ParquetReader

        return ParquetReader(file, path, parse)
    from rerank.batch.jsonl import JsonlReader

    return JsonlReader(file, lines, parse)


@dataclass(frozen=True, slots=True)
class Input:
    """An open input and what it is."""

    path: Path
    parts: list[Path]
    reader: RowReader
    identity: FileIdentity

    def check(self) -> None:
        """Raise InputError if a file was changed since it was identified."""
        self.identity.check(self.path, self.parts)


def _states(parts: list[Path]) -> tuple[tuple[int, int], ...]:
    try:
        states = [part.stat() for part in parts]
    except OSError:
        return ()
    return tuple((state.st_size, state.st_mtime_ns) for state in states)


def _open(path: Path) -> IO[bytes]:
    """Open the file for reading, unpacked; a pipe is refused, as it cannot be read twice."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: expected a regular file, which can be read twice")
        file = io.BufferedReader(path.open("rb", buffering=0), BUFFER)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if ending(path) in PARQUET:
        return file
    if file.peek(4)[:4].startswith((GZIP, ZSTD)):
        file.close()
        return io.BufferedReader(Unpacked(path), BUFFER)
    kind = foreign(file.peek(HEAD)[:HEAD], ending(path))
    if kind is not None:
        file.close()
        raise InputError(f"{path}: {kind}")
    return file


def _identify(parts: list[Path]) -> FileIdentity:
    """Read the parts once, a megabyte at a time, for their hash and their numbers of lines."""
    content, size, lines = hashlib.sha256(), 0, list[int]()
    states = _states(parts)
    for part in parts:
        count, last, blank = 0, b"\n", True
        with _open(part) as file:
            while block := file.read(BUFFER):
                content.update(block)
                size += len(block)
                count += block.count(b"\n")
                last = block[-1:]
                blank = blank and block.isspace()
        lines.append(0 if blank else count + (last != b"\n"))
    return FileIdentity(content.hexdigest(), size, tuple(lines), states)

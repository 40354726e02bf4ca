"""The input of a rescoring: opens a file by its ending, and refuses a file that changes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rerank.batch.chunks import BUFFER, RowReader
from rerank.batch.rows import RowParser
from rerank.data.lines import JSONL
from rerank.errors import InputError, optional

PARQUET = (".parquet", ".pq")
ENDINGS = (*PARQUET, *JSONL, "")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of an input: its content, and when its file was last written to."""

    sha256: str
    size: int
    lines: int  # of text, blank ones too
    modified: int  # nanoseconds

    def check(self, path: Path, state: os.stat_result) -> None:
        """Refuse a file that was changed since.

        Raises:
            InputError: `state` has another size or time.
        """
        if (state.st_size, state.st_mtime_ns) != (self.size, self.modified):
            raise InputError(f"{path} was changed while it was read; start again when it is whole")


def is_parquet(path: Path) -> bool:
    """Whether the file's ending is one of Parquet; else it is one of JSONL.

    Raises:
        InputError: it is neither.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    return ending in PARQUET


@contextmanager
def open_input(
    path: Path, parse: RowParser, identified: FileIdentity | None = None
) -> Iterator[Input]:
    """Open an input, and close it at the end; it is read to identify it, unless `identified`.

    Raises:
        InputError: not a regular file, not readable as Parquet, or Parquet without `_id` and
            `query` (or `text`); it has no row; or it was changed since it was identified.
    """
    parquet = is_parquet(path)
    with _open(path) as file:
        if identified is not None:
            identified.check(path, os.fstat(file.fileno()))
        reader: RowReader
        if parquet:
            with optional():
                from rerank.batch.parquet import ParquetReader

            reader = ParquetReader(file, path, parse)
            identity = identified or _identify(file)
        else:
            from rerank.batch.jsonl import JsonlReader

            identity = identified or _identify(file)
            reader = JsonlReader(file, identity.lines, parse)
        if not reader.total:
            raise InputError(f"{path}: holds no query")
        yield Input(path, file, reader, identity)


@dataclass(frozen=True, slots=True)
class Input:
    """An open input and what it is."""

    path: Path
    file: IO[bytes]
    reader: RowReader
    identity: FileIdentity

    def check(self) -> None:
        """Raise InputError if the file was changed since it was identified."""
        self.identity.check(self.path, os.fstat(self.file.fileno()))


def _open(path: Path) -> IO[bytes]:
    """Open the file for reading; a pipe is refused, as it cannot be read twice."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: expected a regular file, which can be read twice")
        return path.open("rb", buffering=BUFFER)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _identify(file: IO[bytes]) -> FileIdentity:
    """Read the file once, a megabyte at a time, for its hash and its number of lines."""
    state, lines, last, blank = hashlib.sha256(), 0, b"\n", True
    status = os.fstat(file.fileno())
    file.seek(0)
    while block := file.read(BUFFER):
        state.update(block)
        lines += block.count(b"\n")
        last = block[-1:]
        blank = blank and block.isspace()
    records = 0 if blank else lines + (last != b"\n")
    return FileIdentity(state.hexdigest(), status.st_size, records, status.st_mtime_ns)

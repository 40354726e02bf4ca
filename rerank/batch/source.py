"""Inputs of a rescoring: a file is opened by its ending, identified, and watched for changes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rerank.batch.chunks import BUFFER, RowSource
from rerank.errors import InputError, optional

PARQUET = (".parquet", ".pq")
JSONL = (".jsonl", ".ndjson", ".json", "")


@dataclass(frozen=True, slots=True)
class Identity:
    """What an input is, by its content, and when its file was last written to."""

    sha256: str
    size: int
    lines: int  # of text, blank ones too
    modified: int  # nanoseconds

    def check(self, path: Path, state: os.stat_result) -> None:
        """Refuse a file that was written to since.

        Raises:
            InputError: `state` shows another size or time.
        """
        if (state.st_size, state.st_mtime_ns) != (self.size, self.modified):
            raise InputError(f"{path} was changed while it was read; start again when it is whole")


def is_parquet(path: Path) -> bool:
    """Whether the file's ending says Parquet; else it says JSONL.

    Raises:
        InputError: it says neither.
    """
    ending = path.suffix.lower()
    if ending not in PARQUET + JSONL:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    return ending in PARQUET


@contextmanager
def open_input(
    path: Path, known: Identity | None = None, *, segment_by: str = ""
) -> Iterator[Input]:
    """An input to read, closed at the end; `known` saves the reading that identifies it.

    `segment_by` names what of the rows' metadata is read.

    Raises:
        InputError: no regular file, no readable Parquet, or one without `_id` and `text`; it holds
            no row; or it was written to since it was `known`.
    """
    parquet = is_parquet(path)
    with _open(path) as file:
        if known is not None:
            known.check(path, os.fstat(file.fileno()))
        source: RowSource
        if parquet:
            with optional():
                from rerank.batch.parquet import ParquetSource

            source = ParquetSource(file, path, segment_by)
            identity = known or _identify(file)
        else:
            from rerank.batch.jsonl import JsonlSource

            identity = known or _identify(file)
            source = JsonlSource(file, identity.lines, segment_by)
        if not source.total:
            raise InputError(f"{path}: holds no query")
        yield Input(path, file, source, identity)


@dataclass(frozen=True, slots=True)
class Input:
    """An open input and what it is."""

    path: Path
    file: IO[bytes]
    source: RowSource
    identity: Identity

    def check(self) -> None:
        """Refuse to go on where the file was written to since it was identified."""
        self.identity.check(self.path, os.fstat(self.file.fileno()))


def _open(path: Path) -> IO[bytes]:
    """The file, open to read: not a pipe, which cannot be read twice."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: expected a regular file, which can be read twice")
        return path.open("rb", buffering=BUFFER)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _identify(file: IO[bytes]) -> Identity:
    """Read the file once, a megabyte at a time: its hash, and how many lines it has."""
    state, lines, last, blank = hashlib.sha256(), 0, b"\n", True
    before = os.fstat(file.fileno())
    file.seek(0)
    while block := file.read(BUFFER):
        state.update(block)
        lines += block.count(b"\n")
        last = block[-1:]
        blank = blank and block.isspace()
    found = 0 if blank else lines + (last != b"\n")
    return Identity(state.hexdigest(), before.st_size, found, before.st_mtime_ns)

"""The files of a rescoring: opens the input by its ending, and checks the places of outputs."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rerank.batch.rows import Chunk, JsonLines, Part, SeparatedRows
from rerank.data.lines import ENDINGS as RECORDS
from rerank.data.lines import JSONL, PARQUET, SEPARATED, ending, opened, parts_of, unpacked
from rerank.errors import InputError, optional
from rerank.storage.files import BUFFER

ENDINGS = (*PARQUET, *JSONL, "")  # of an output


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What an input holds, and when its files were last written to."""

    sha256: str  # of the unpacked lines, or of Parquet as it is
    size: int
    lines: tuple[int, ...]  # of the text of each part, blank ones too
    modified: tuple[tuple[int, int], ...]  # bytes and nanoseconds of each part

    def check(self, path: Path, parts: list[Path]) -> None:
        """Raise InputError if one of the files has another size or time now."""
        if _states(parts) != self.modified:
            raise InputError(f"{path} was changed while it was read; start again when it is whole")


def is_parquet(path: Path) -> bool:
    """Whether an output is Parquet, by its ending; else it is JSONL."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    return path.suffix.lower() in PARQUET


def open_input(
    path: Path, segment_by: str | None = "", identified: FileIdentity | None = None
) -> Input:
    """Open a file of `rerank.data.lines`, or a folder of part files of one kind.

    It is read to identify it, unless it is `identified`. Of the metadata of its rows the key
    `segment_by` is read; "": none, None: all.
    """
    paths = parts_of(path)
    kind = ending(paths[0])
    if kind not in (*RECORDS, "") and paths == [path]:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    if identified is not None:
        identified.check(path, paths)
    identity = identified or _identify(paths)
    of_kind: type[Part] = SeparatedRows if kind in SEPARATED else JsonLines
    if kind in PARQUET:
        with optional():
            from rerank.batch.parquet import ParquetRows
        of_kind = ParquetRows
    parts, before = list[Part](), 0
    for part, lines in zip(paths, identity.lines, strict=True):
        name = "" if part == path else part.relative_to(path).as_posix()
        parts.append(of_kind(part, segment_by, before, name, lines))
        before += parts[-1].total
    if not before:
        raise InputError(f"{path}: holds no query")
    return Input(path, identity, parts)


class Input:
    """The files of an input as one, and what they hold; lines are counted through all of them."""

    def __init__(self, path: Path, identity: FileIdentity, parts: Sequence[Part]) -> None:
        self.path, self.identity = path, identity
        self.total = sum(part.total for part in parts)
        self._parts = parts
        self._ahead = self.chunks(0)
        self._next = 0

    def check(self) -> None:
        """See `FileIdentity.check`."""
        self.identity.check(self.path, [part.path for part in self._parts])

    def chunks(self, start: int) -> Iterator[Chunk]:
        """All chunks after `start` rows, which is the end of a chunk; none is of two files."""
        return (chunk for part in self._after(start) for chunk in part.chunks(start))

    def starts(self, start: int) -> Iterator[int]:
        """Where these chunks start; it reads nothing."""
        return (line for part in self._after(start) for line in part.starts(start))

    def at(self, start: int) -> Chunk:
        """The chunk that starts there, as `starts` returned it; cheapest in their order."""
        (part, *_) = self._after(start)
        if start < self._next or part.begin(start) > self._next:
            self._ahead = self.chunks(start)
        chunk = next(c for c in self._ahead if c.start == start)
        self._next = chunk.end
        return chunk

    def _after(self, start: int) -> Sequence[Part]:
        ends = bisect_right(self._parts, start, key=lambda part: part.before + part.total)
        return self._parts[ends:]


def _states(parts: list[Path]) -> tuple[tuple[int, int], ...]:
    try:
        states = [part.stat() for part in parts]
    except OSError:
        return ()
    return tuple((state.st_size, state.st_mtime_ns) for state in states)


def _identify(parts: list[Path]) -> FileIdentity:
    """Read the parts once, a megabyte at a time, for their hash and their numbers of lines."""
    content, size, lines = hashlib.sha256(), 0, list[int]()
    states = _states(parts)
    for part in parts:
        count, last, blank = 0, b"\n", True
        with (opened if ending(part) in PARQUET else unpacked)(part) as file:
            while block := file.read(BUFFER):
                content.update(block)
                size += len(block)
                count += block.count(b"\n")
                last = block[-1:]
                blank = blank and block.isspace()
        lines.append(0 if blank else count + (last != b"\n"))
    return FileIdentity(content.hexdigest(), size, tuple(lines), states)


def check_places(model: Path, queries: Path, *outputs: Path) -> None:
    """Refuse outputs that would replace the queries, or lie in no folder or in the model's."""
    for path in outputs:
        if path.resolve() == queries.resolve() or (path.exists() and path.samefile(queries)):
            raise InputError(f"{path}: this would replace the queries; give another --out")
        if queries.is_dir() and path.resolve().is_relative_to(queries.resolve()):
            raise InputError(f"{path}: lies in the folder of the queries; give another --out")
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}; make it, or give another")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is a folder, or no ordinary file; expected a file's name")
        if path.resolve().is_relative_to(model.resolve()):
            raise InputError(f"{path}: lies in the model's folder, which no file is added to")

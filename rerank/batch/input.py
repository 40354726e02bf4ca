"""The files of a rescoring: opens the input by its ending, and checks the places of outputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from rerank.batch.readers import JsonLines, Part, Reader, SeparatedRows
from rerank.batch.rows import RowParser
from rerank.data.lines import BUFFER, JSONL, PARQUET, SEPARATED, ending, opened, parts_of, unpacked
from rerank.data.lines import ENDINGS as RECORDS
from rerank.errors import InputError, optional

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
    """Whether the ending of an output is one of Parquet; else it is one of JSONL."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    return path.suffix.lower() in PARQUET


def open_input(path: Path, parse: RowParser, identified: FileIdentity | None = None) -> Input:
    """Open an input; it is read to identify it, unless it is `identified`.

    It is any file of `rerank.data.lines`, or a folder of part files of one kind.

    Raises:
        InputError: not a regular file, of another kind than its name says, not readable as Parquet,
            or Parquet without `_id` and `query` (or `text`); it has no row; or it was changed since
            it was identified.
    """
    paths = parts_of(path)
    if ending(paths[0]) not in (*RECORDS, "") and paths == [path]:
        raise InputError(f"{path}: expected a name that ends with .jsonl or .parquet")
    if identified is not None:
        identified.check(path, paths)
    identity = identified or _identify(paths)
    parts = list[Part]()
    for part, lines in zip(paths, identity.lines, strict=True):
        before = parts[-1].before + parts[-1].total if parts else 0
        name = "" if part == path else part.relative_to(path).as_posix()
        if ending(part) in PARQUET:
            with optional():
                from rerank.batch.parquet import ParquetRows

            parts.append(ParquetRows(part, parse, before, name))
        elif ending(part) in SEPARATED:
            parts.append(SeparatedRows(part, parse, before, name))
        else:
            parts.append(JsonLines(part, parse, before, name, lines))
    reader = Reader(parts)
    if not reader.total:
        raise InputError(f"{path}: holds no query")
    return Input(path, paths, reader, identity)


@dataclass(frozen=True, slots=True)
class Input:
    """An open input and what it is."""

    path: Path
    parts: list[Path]
    reader: Reader
    identity: FileIdentity

    def check(self) -> None:
        """See `FileIdentity.check`."""
        self.identity.check(self.path, self.parts)


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

"""Files that hold records: their names, parts and packing.

    .jsonl .ndjson .json    one JSON object per line
    .csv .tsv               a first line with the names of the columns, then the rows
    .parquet .pq            Parquet
    .gz .zst                after any other of these

A folder stands for its part files, in the order of their names. What is packed is told by the first
bytes, not by the name. A file of another kind is refused in one sentence.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rerank.errors import InputError, optional
from rerank.storage.files import regular

JSONL = (".jsonl", ".json", ".ndjson")
SEPARATED = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
PACKED = (".gz", ".zst")
ENDINGS = (*JSONL, *SEPARATED, *PARQUET)
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"
FOREIGN = (  # the first bytes of a file that is no text
    (b"PK\x03\x04", "a ZIP archive; unpack it"),
    (b"BZh", "packed by bzip2; expected plain text, gzip or zstd"),
    (b"\xfd7zXZ", "packed by xz; expected plain text, gzip or zstd"),
    (b"PAR1", "a Parquet file; give it a name that ends with .parquet"),
    (b"SQLite format 3", "an SQLite database; export the table as .csv"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file; run git lfs pull"),
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
)
JSON_ARRAY = re.compile(rb"\s*\[\s*(\{|$)")
ONE_DOCUMENT = re.compile(rb'\s*\{[ \r]*\n\s+"')
NO_BOM = re.compile(rb"[\x20-\x7f]\0[\x20-\x7f]\0|\0[\x20-\x7f]\0[\x20-\x7f]")  # of UTF-16
WEB_PAGE = re.compile(rb"\s*<(!doctype )?html", re.IGNORECASE)
HEAD = 512  # bytes that tell the kind
BUFFER = 2**20


class KindError(InputError):
    """A file is not of the kind that its name says: none of its lines is read."""


def ending(path: Path) -> str:
    """The ending of the name that says what the file holds, without that of its packing."""
    return _without_packing(path.name.lower()).suffix


def stem(path: Path) -> str:
    """The name without these endings, if it holds records."""
    return _without_packing(path.name).stem if ending(path) in ENDINGS else path.name


def _without_packing(name: str) -> Path:
    return Path(name[: name.rindex(".")] if name.lower().endswith(PACKED) else name)


def parts_of(path: Path) -> list[Path]:
    """The file, or the part files of a folder, but for names that begin with "." or "_".

    Raises:
        InputError: a folder without part files, with several kinds of them, or a labelled set.
    """
    if not path.is_dir():
        return [path]
    named = sorted((p.relative_to(path).as_posix(), p) for p in path.rglob("*") if p.is_file())
    visible = [p for name, p in named if not any(n[0] in "._" for n in name.split("/"))]
    tables = {p.name.partition(".")[0] for p in visible}
    if {"corpus", "queries"} <= tables:
        raise InputError(f"{path}: a labelled set; expected a file, such as its queries.jsonl")
    parts = [p for p in visible if ending(p) in ENDINGS or p.name.startswith("part-")]
    kinds = sorted({ending(p) for p in parts})
    if len(kinds) != 1:
        came = f"part files of several kinds: {', '.join(kinds)}" if kinds else "no part files"
        raise InputError(f"{path}: a folder with {came}; expected one kind: {', '.join(ENDINGS)}")
    return parts


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The bytes of a regular file, as they are.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    try:
        with (
            regular(path) as handle,
            io.FileIO(handle, closefd=False) as raw,
            io.BufferedReader(raw, BUFFER) as file,
        ):
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


@contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The bytes of a file of text, unpacked if they are packed.

    Raises:
        KindError: it is no text, or JSON that is not one object per line.
        InputError: there is no such file, or it cannot be read.
    """
    with opened(path) as raw:
        stream: Any = raw
        start = raw.peek(len(ZSTD))
        if start.startswith(GZIP):
            stream = gzip.GzipFile(fileobj=raw)
        elif start.startswith(ZSTD):
            with optional():
                import pyarrow as pa
            stream = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw), "zstd"))
        kind = foreign(stream.peek(HEAD)[:HEAD], ending(path))
        if kind is not None:
            raise KindError(f"{path}: {kind}")
        yield stream


def is_packed(path: Path) -> bool:
    """Whether the file is packed, by its first bytes."""
    with opened(path) as raw:
        return bool(raw.peek(len(ZSTD)).startswith((GZIP, ZSTD)))


def foreign(head: bytes, kind: str) -> str | None:
    """What a file is, by its first bytes, if it is not what its ending says; else None."""
    for start, what in FOREIGN:
        if head.startswith(start):
            return what
    if NO_BOM.match(head):
        return "UTF-16 text; save it as UTF-8"
    if WEB_PAGE.match(head):
        return "a web page; fetch the file itself"
    if kind in JSONL:
        if JSON_ARRAY.match(head.removeprefix(BOM)):
            return "a JSON array; expected one object a line (jq -c '.[]' FILE makes it so)"
        if ONE_DOCUMENT.match(head.removeprefix(BOM)):
            return "JSON over several lines; expected one object a line (jq -c . FILE makes it so)"
    return None


def other_separator(line: str, expected: str) -> str | None:
    """What separates the cells of the first line, if it is not the separator of the ending."""
    found = next((s for s in SEPARATORS if s in line), expected)
    if expected in line or found == expected:
        return None
    return f"separated by {SEPARATORS[found]}; expected {SEPARATORS[expected]}"

"""Files that hold records, and their lines: all bad ones are reported in one error, or left out.

    .jsonl .ndjson .json    one JSON object per line
    .csv .tsv               a first line with the names of the columns, then the rows
    .parquet .pq            Parquet
    .gz .zst                after any other of these

A folder stands for its part files, in the order of their names. What is packed is told by the first
bytes, not by the name. A file of another kind is refused in one sentence.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rerank.data.checks import PANDAS_NAN, json_type
from rerank.errors import InputError, check_one_of, optional
from rerank.storage.files import RepeatedKeyError, loads, regular

JSONL = (".jsonl", ".json", ".ndjson")
SEPARATED = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")
PACKED = (".gz", ".zst")
ENDINGS = (*JSONL, *SEPARATED, *PARQUET)
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"
UTF_16 = rb"\xff\xfe|\xfe\xff|[\x20-\x7f]\0[\x20-\x7f]\0|\0[\x20-\x7f]\0[\x20-\x7f]"
FOREIGN = (  # how a file begins that is no text
    (b"PK\x03\x04", "a ZIP archive; unpack it"),
    (rb"(?s).{257}ustar", "a tar archive; unpack it"),
    (b"BZh", "packed by bzip2; expected plain text, gzip or zstd"),
    (b"\xfd7zXZ", "packed by xz; expected plain text, gzip or zstd"),
    (b"PAR1", "a Parquet file; give it a name that ends with .parquet"),
    (b"SQLite format 3", "an SQLite database; export the table as .csv"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file; run git lfs pull"),
    (UTF_16, "UTF-16 text; save it as UTF-8"),
    (rb"(?i)\s*<(!doctype )?html", "a web page; fetch the file itself"),
)
NO_LINES = (  # likewise, what is not one JSON object a line
    (rb'"?(_id|id|query|text|title|question)"?\s*[,;\t]', "a table; call it .csv or .tsv"),
    (rb"\s*\[\s*(\{|$)", "a JSON array; expected one object a line (jq -c '.[]' FILE makes it so)"),
    (
        rb'\s*\{[ \r]*\n\s+"',
        "JSON over several lines; expected one object a line (jq -c . FILE makes it so)",
    ),
)
NO_CELLS = ((rb'\s*\{\s*"', "JSON; call it .jsonl"),)  # likewise, what has no separators
HEAD = 512  # bytes that tell the kind


class KindError(InputError):
    """A file is not of the kind that its name says: none of its lines is read."""


def ending(path: Path) -> str:
    """The ending of the name that says what the file holds, without that of its packing."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix in PACKED else name.suffix


def stem(path: Path) -> str:
    """The name without these endings, if it holds records."""
    name = path.stem if path.suffix.lower() in PACKED else path.name
    return Path(name).stem if ending(path) in ENDINGS else path.name


def parts_of(path: Path) -> list[Path]:
    """The file, or the part files of a folder, but for names that begin with "." or "_"."""
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


def not_found(paths: Sequence[Path]) -> InputError:
    """The error that there are no such files, with those that differ only in the ending."""
    alike = {n.name for p in paths for n in p.parent.glob(f"{glob.escape(stem(p))}.*")}
    there = f"; there is {', '.join(sorted(alike))}" if alike else ""
    return InputError(f"{', '.join(map(str, paths))}: no such file{there}")


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The bytes of a regular file, as they are."""
    try:
        with regular(path) as file:
            yield file
    except FileNotFoundError:
        raise not_found([path]) from None
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
        if (kind := foreign(stream.peek(HEAD)[:HEAD], ending(path))) is not None:
            raise KindError(f"{path}: {kind}")
        yield stream


def foreign(head: bytes, kind: str) -> str | None:
    """What a file is, by its first bytes, if it is not what its ending says; else None."""
    of_kind = NO_LINES if kind in JSONL else NO_CELLS if kind in SEPARATED else ()
    begin = head.removeprefix(BOM)
    return next((what for start, what in (*FOREIGN, *of_kind) if re.match(start, begin)), None)


def other_separator(line: str, expected: str) -> str | None:
    """What separates the cells of the first line, if it is not the separator of the ending."""
    found = next((s for s in SEPARATORS if s in line), expected)
    if expected in line or found == expected:
        return None
    return f"separated by {SEPARATORS[found]}; expected {SEPARATORS[expected]}"


SHOWN_PROBLEMS = 20
LONGEST_PROBLEM = 300  # characters
LONGEST_CELL = 2**23  # characters
ON_BAD_LINES = ("refuse", "skip")
# columns of a .csv that hold JSON
AS_JSON = {"passages", "documents", "metadata", "relevant", "right", "chosen", "top", "supported"}
NAMES = {"_id", "id", "query", "text", "question", "claim", "query-id", "query_id"}

Result = TypeVar("Result")


@dataclass(slots=True)
class Problems:
    """Counts every bad line, and keeps the first ones to list them in one error.

    With `skip`, bad lines are left out and counted by what they hold, and only what contradicts
    itself is an error. Equal ones that occur twice are `merged`.
    """

    skip: bool = False
    may_skip: bool = False  # the caller may choose to skip: the error says how
    messages: list[str] = field(default_factory=list)
    count: int = 0
    listed: list[str] = field(default_factory=list)  # of those left out
    left_out: Counter[str] = field(default_factory=Counter)
    merged: int = 0
    _skippable: bool = False
    _repeated: Counter[str] = field(default_factory=Counter)

    @classmethod
    def by(cls, on_bad_lines: str) -> Problems:
        """As `on_bad_lines` says, one of `ON_BAD_LINES`."""
        check_one_of("on_bad_lines", on_bad_lines, ON_BAD_LINES)
        return cls(skip=on_bad_lines == "skip", may_skip=True)

    def add(self, where: str, problem: str, what: str = "lines") -> None:
        """Note that something is wrong with the line at `where`, which holds one of `what`."""
        if self.skip:
            self.left_out[what] += 1
            _list(self.listed, where, problem)
        else:
            self._skippable |= self.may_skip
            self.refuse(where, problem)

    def refuse(self, where: str, problem: str) -> None:
        """Note what is an error in any case."""
        self.count += 1
        if PANDAS_NAN in problem:  # of a whole column: told once
            self._repeated[problem] += 1
            if self._repeated[problem] > 1:
                return
        _list(self.messages, where, problem)

    def left_out_lines(self) -> str:
        """How many lines were left out, with the first ones; "" if none was."""
        if not self.left_out:
            return ""
        counts = ", ".join(f"{n} {what}" for what, n in self.left_out.items())
        more = sum(self.left_out.values()) - len(self.listed)
        listed = "\n  ".join([*self.listed, *([f"... and {more} more"] if more else [])])
        return f"left out (--on-bad-lines skip): {counts}:\n  {listed}"

    def nothing(self, summary: str) -> InputError:
        """The error that nothing is left to use, with what was left out."""
        return InputError("; ".join(filter(None, (summary, self.left_out_lines()))))

    def raise_if_any(self, summary: str) -> None:
        """Raise one error that lists the problems, if there are any."""
        if not self.messages:
            return
        again = {p: f" (and {n - 1} more lines)" for p, n in self._repeated.items() if n > 1}
        messages = [m + next((a for p, a in again.items() if p in m), "") for m in self.messages]
        shown = "\n  ".join(messages)
        more = self.count - sum(n - 1 for n in self._repeated.values()) - SHOWN_PROBLEMS
        others = f"\n  ... and {more} more" if more > 0 else ""
        lines = "1 bad line; fix it" if self.count == 1 else f"{self.count} bad lines; fix them"
        hint = ", or leave out what can be left out: --on-bad-lines skip" * self._skippable
        raise InputError(f"{summary}: {lines}{hint}:\n  {shown}{others}")


def _list(messages: list[str], where: str, problem: str) -> None:
    if len(messages) < SHOWN_PROBLEMS:
        if len(problem) > LONGEST_PROBLEM:
            problem = problem[: LONGEST_PROBLEM - 1] + "…"
        messages.append(f"{where}: {problem}")


def holds_records(path: Path) -> bool:
    """Whether the name says that it holds records: JSON lines, Parquet, a folder of parts, .csv."""
    return path.is_dir() or ending(path) in (*JSONL, *PARQUET, ".csv")


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """(file and number, line) of each line that is not blank; a packed file is unpacked."""
    number = 0
    try:
        with unpacked(path) as stream:
            for number, data in enumerate(stream, start=1):
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                if line.strip():
                    yield f"{path}:{number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number, error) from None


def _not_utf8(path: Path, number: int, error: UnicodeDecodeError) -> InputError:
    return KindError(
        f"{path}:{number}: not UTF-8 text ({error}); of Windows-1252? Convert it: iconv -f "
        "WINDOWS-1252 -t UTF-8"
    )


def rows(path: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(file and number, record) of each record of a file, or of the part files of a folder; a line
    that is no record goes to `problems`.
    """
    for part in parts_of(path):
        for where, row in any_rows(part):
            if isinstance(row, str):
                problems.add(where, row)
            else:
                yield where, row


def any_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    """(file and number, record, or why it is none) of each line of one file."""
    kind = ending(path)
    if kind in PARQUET:
        yield from _parquet_rows(path)
    elif kind in SEPARATED:
        yield from _separated_rows(path, SEPARATED[kind])
    else:
        for where, line in lines(path):
            try:
                yield where, read_object(line)
            except InputError as error:
                yield where, str(error)


def read_object(line: str | bytes) -> Mapping[str, Any]:
    """The object of a line of JSON. NaN is read: whoever reads the field says what is wrong."""
    try:
        row = loads(line if isinstance(line, str) else line.decode(), constants=True)
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 (byte {error.start + 1} of the line)") from None
    except RecursionError:
        raise InputError("not JSON that can be read: it is nested too deep") from None
    except ValueError as error:
        is_repeated = isinstance(error, RepeatedKeyError)
        raise InputError(str(error) if is_repeated else f"not JSON ({error})") from None
    if not isinstance(row, dict):
        raise InputError(f"expected a JSON object, got {json_type(row)}")
    return row


def _separated_rows(path: Path, separator: str) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    number = 0
    try:
        with unpacked(path) as stream, io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=separator, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if twice := next((n for n in header if n and header.count(n) > 1), ""):
                raise KindError(f"{path}: the column {twice!r:.80} appears twice")
            if not NAMES & set(header):
                other = other_separator(header[0] if header else "", separator)
                raise KindError(
                    f"{path}: {other or 'no names of columns'}; expected a first line such as "
                    f"_id{separator}query"
                )
            for cells in reader:
                number = reader.line_num
                if len(cells) == len(header):
                    yield f"{path}:{number}", _of_cells(dict(zip(header, cells, strict=True)))
                elif any(cells):
                    yield f"{path}:{number}", f"expected {len(header)} cells, got {len(cells)}"
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number + 1, error) from None
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read after line {number} ({error})") from None


def _of_cells(cells: Mapping[str, str]) -> dict[str, Any]:
    """The values of cells: those of `AS_JSON` are JSON, or missing if they are empty."""
    row: dict[str, Any] = {n: cell for n, cell in cells.items() if n not in AS_JSON or cell.strip()}
    for name in AS_JSON & row.keys():
        cell = row[name]
        with suppress(ValueError, RecursionError):  # whoever expects an object or a list refuses it
            row[name] = loads(cell.lower() if cell in ("True", "False") else cell)
    return row


def _parquet_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with optional():
        import pyarrow as pa
        import pyarrow.parquet as pq
    with opened(path) as raw:
        try:
            batches = pq.ParquetFile(raw).iter_batches(64)
            table = (row for batch in batches for row in batch.to_pylist())
            yield from ((f"{path}:{number}", row) for number, row in enumerate(table, start=1))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise KindError(f"{path}: not a readable Parquet file ({str(error)[:200]})") from None


def records(
    path: Path, make: Callable[[Mapping[str, Any]], Result], problems: Problems, what: str = "lines"
) -> Iterator[tuple[str, Result]]:
    """(file and number, the result of `make`) for each record of a file or of a folder's parts.

    What `make` refuses with an InputError goes to `problems`, as one of `what`; so does a file that
    is of another kind than its name says.
    """
    try:
        for where, row in rows(path, problems):
            try:
                value = make(row)
            except InputError as error:
                problems.add(where, str(error), what)
            else:
                yield where, value
    except KindError as error:
        where, _, why = str(error).partition(": ")
        problems.refuse(where, why)


def read_records(
    path: Path, make: Callable[[Mapping[str, Any]], Result], what: str
) -> list[Result]:
    """The result of `make` for each record of a file."""
    problems = Problems()
    values = [value for _, value in records(path, make, problems)]
    problems.raise_if_any(str(path))
    if not values:
        raise InputError(f"{path}: holds no {what}")
    return values

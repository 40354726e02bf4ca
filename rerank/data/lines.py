"""Text files, line by line: all bad lines are reported in one error.

It knows nothing of what a line means.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rerank.data.checks import json_type
from rerank.errors import InputError
from rerank.storage.files import RepeatedKeyError, loads, regular

SHOWN_PROBLEMS = 20
LONGEST_PROBLEM = 300  # characters
JSONL = (".jsonl", ".json", ".ndjson")  # endings of a file of JSON lines, before .gz

Result = TypeVar("Result")


@dataclass(slots=True)
class Problems:
    """Counts every bad line, and keeps the first ones to list them in one error."""

    messages: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, where: str, problem: str) -> None:
        """Note that something is wrong with the line at `where`."""
        self.count += 1
        if len(self.messages) < SHOWN_PROBLEMS:
            if len(problem) > LONGEST_PROBLEM:
                problem = problem[: LONGEST_PROBLEM - 1] + "…"
            self.messages.append(f"{where}: {problem}")

    def raise_if_any(self, summary: str) -> None:
        """Raise one error that lists the problems, if there are any."""
        if not self.messages:
            return
        shown = "\n  ".join(self.messages)
        more = self.count - SHOWN_PROBLEMS
        others = f"\n  ... and {more} more" if more > 0 else ""
        lines = "1 bad line; fix it" if self.count == 1 else f"{self.count} bad lines; fix them"
        raise InputError(f"{summary}: {lines}:\n  {shown}{others}")


def is_jsonl(path: Path) -> bool:
    """Whether the name of a file says that it holds JSON lines."""
    return Path(path.name.removesuffix(".gz")).suffix.lower() in JSONL


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """(file and number, line) of each line that is not blank; a `.gz` file is unpacked.

    Raises:
        InputError: no such file, or it is not text.
    """
    number = 0
    try:
        with regular(path) as handle, open(handle, "rb", closefd=False) as raw:
            unpacked = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            for number, data in enumerate(unpacked, start=1):
                line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                if line.strip():
                    yield f"{path}:{number}", line.rstrip("\r\n")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:{number}: not UTF-8 text ({error})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def records(
    path: Path, make: Callable[[Mapping[str, Any]], Result], problems: Problems
) -> Iterator[tuple[str, Result]]:
    """(file and number, the result of `make`) for each JSON object of a file, one per line.

    A line that is not an object, or that `make` refuses with an InputError, goes to `problems`.
    """
    for where, line in lines(path):
        try:
            row = loads(line)
        except RepeatedKeyError as error:
            problems.add(where, str(error))
            continue
        except (ValueError, RecursionError) as error:
            problems.add(where, f"not JSON ({error})")
            continue
        if not isinstance(row, dict):
            problems.add(where, f"expected a JSON object, got {json_type(row)}")
            continue
        try:
            value = make(row)
        except InputError as error:
            problems.add(where, str(error))
            continue
        yield where, value


def read_records(
    path: Path, make: Callable[[Mapping[str, Any]], Result], what: str
) -> list[Result]:
    """The result of `make` for each line of a file.

    Raises:
        InputError: listing every bad line with file and line number; or no line at all.
    """
    problems = Problems()
    values = [value for _, value in records(path, make, problems)]
    problems.raise_if_any(str(path))
    if not values:
        raise InputError(f"{path}: holds no {what}")
    return values

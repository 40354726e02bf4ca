"""Ways of doing one thing, timed in turns in one run: what every benchmark here is made of."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def in_turns(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each way by round, and what each gave last; a first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    given: dict[str, Any] = {}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            start = clock()
            given[name] = way()
            if turn:
                seconds[name].append(clock() - start)
    return seconds, given


def ratios(seconds: Mapping[str, list[float]], reference: str) -> dict[str, str]:
    """How many times as fast as the reference each way was: median and range over the rounds."""
    found = {}
    for name, took in seconds.items():
        each = [a / b for a, b in zip(seconds[reference], took, strict=True)]
        found[name] = f"{statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f})"
    return found


def table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """A Markdown table: a row a way, a column a measure; what a row lacks stays empty."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(row.get(column, "") for column in columns) + " |"
        for name, row in rows.items()
    ]
    return "\n".join(lines)


def installed(module: str, package: str) -> bool:
    """Import `module`, and say whether that went well; if not, a line says how to install it."""
    try:
        import_module(module)
    except ModuleNotFoundError:
        leave_out(module, f"not installed: pip install {package}")
    except Exception as error:  # a library that is not ours fails in its own ways
        leave_out(module, first_line(error))
    else:
        return True
    return False


def versions(packages: Sequence[str]) -> str:
    """Names and versions of those packages that are installed, in the given order."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


@cache
def leave_out(name: str, why: str) -> None:
    """Say on stderr, in one line and once, that a way is not measured."""
    print(f"left out: {name} ({why})", file=sys.stderr)


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]

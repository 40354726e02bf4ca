"""Ways of doing one thing, timed in turns in one process: what every benchmark here is made of."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def in_turns(
    ways: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each way by round, and what each gave last; a first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    given: dict[str, Any] = {}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            given[name] = way()
            if turn:
                seconds[name].append(time.perf_counter() - start)
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

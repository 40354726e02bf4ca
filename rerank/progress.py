"""Work in parts, and one progress bar for every step that takes longer than two seconds, as plain
lines, ten seconds apart, where stderr is no terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any, TypeVar

UP = "\x1b[A"  # what tqdm writes to leave the line of a bar within another one
DELAY = 2.0  # seconds after which a bar appears
PLAIN = "{desc}: {n_fmt} of {total_fmt} ({percentage:.0f}%), {rate_fmt}, {remaining} left"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Bar:
    """What steps use of a bar of tqdm; this one is silent."""

    def update(self, n: int = 1, /) -> object:
        """Advance by `n`."""

    def set_postfix_str(self, text: str, /) -> object:
        """Show `text` after the bar."""


class _Lines:
    """The file that a bar writes to if stderr is not a terminal: a line for each new state."""

    def __init__(self) -> None:
        self._last = ""

    def write(self, text: str) -> None:
        line = text.replace(UP, "").strip()
        if line and line != self._last:
            sys.stderr.write(f"{line}\n")
            self._last = line

    def flush(self) -> None:
        sys.stderr.flush()


_on = [True]  # whether bars are shown; the last entry counts


@contextmanager
def progress_shown(*, on: bool) -> Iterator[None]:
    """Within this context, show bars or none."""
    _on.append(on)
    try:
        yield
    finally:
        _on.pop()


@contextmanager
def progress(total: int, label: str | None, *, unit: str = "", done: int = 0) -> Iterator[Bar]:
    """A bar on stderr that shows rate and time left; nothing if `label` is None or bars are off. Of
    the `total`, `done` were done before and do not count in the rate.
    """
    if label is None or not _on[-1]:
        yield Bar()
        return
    plain = {"file": _Lines(), "bar_format": PLAIN, "mininterval": 10.0}
    shown = {"mininterval": 0.5} if sys.stderr.isatty() else plain
    with _bars()(
        total=total,
        initial=done,
        desc=label,
        unit=unit or "it",
        delay=DELAY,
        miniters=1,
        ascii=" =",
        **shown,
    ) as bar:
        yield bar


def in_chunks(
    items: Sequence[Item],
    step: Callable[[Sequence[Item]], Iterable[Result]],
    *,
    size: int,
    label: str | None,
    unit: str,
) -> list[Result]:
    """The results of `step` for all items, `size` at a time; `label` as in `progress`."""
    results: list[Result] = []
    with progress(len(items), label, unit=unit) as bar:
        for start in range(0, len(items), size):
            chunk = items[start : start + size]
            results += step(chunk)
            bar.update(len(chunk))
    return results


def by_size(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Neighbouring items of at most `most` in total size; a larger one is alone."""
    group: list[Item] = []
    held = 0
    for item in items:
        own = size(item)
        if group and held + own > most:
            yield group
            group, held = [], 0
        group.append(item)
        held += own
    if group:
        yield group


@cache
def _bars() -> Any:
    """Bars of tqdm, with a lock of this process alone, and without tqdm's monitor thread.

    A fork inherits tqdm's own lock: if it was held then, every later bar would wait forever.
    """
    from tqdm import tqdm

    class Own(tqdm):  # type: ignore[misc]
        monitor_interval = 0

    Own.set_lock(RLock())
    return Own

"""One progress bar for every step that takes longer than two seconds; silent without a label."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any, Protocol


class Bar(Protocol):
    """What a step needs of a bar."""

    def update(self, n: int = 1, /) -> object:
        """Move on by `n`."""

    def set_postfix_str(self, text: str, /) -> object:
        """Show `text` behind the bar."""


class _Silent:
    def update(self, n: int = 1, /) -> object:
        return None

    def set_postfix_str(self, text: str, /) -> object:
        return None


@contextmanager
def progress(total: int, label: str | None, *, unit: str = "", done: int = 0) -> Iterator[Bar]:
    """A bar on stderr that shows rate and time left; nothing where `label` is None.

    Of the `total`, `done` were done before: they do not count in the rate.
    """
    if label is None:
        yield _Silent()
        return
    slow = 0.5 if sys.stderr.isatty() else 10.0  # a log file wants fewer lines
    with _bars()(
        total=total,
        initial=done,
        desc=label,
        unit=unit or "it",
        mininterval=slow,
        miniters=1,
        ascii=" =",
    ) as bar:
        yield bar


@cache
def _bars() -> Any:
    """Bars of tqdm with a lock of this process alone, and without its watching thread.

    Its own lock is shared with forked processes: one that is killed while it holds it, or that
    forks while the watching thread does, would leave every later bar waiting for ever.
    """
    from tqdm import tqdm

    class Own(tqdm):  # type: ignore[misc]
        monitor_interval = 0

    Own.set_lock(RLock())
    return Own

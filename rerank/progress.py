"""One progress bar for every step that takes longer than two seconds; silent without a label."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any, Protocol


class Bar(Protocol):
    """The methods of a bar that steps use."""

    def update(self, n: int = 1, /) -> object:
        """Advance by `n`."""

    def set_postfix_str(self, text: str, /) -> object:
        """Show `text` after the bar."""


class _Silent:
    def update(self, n: int = 1, /) -> object:
        return None

    def set_postfix_str(self, text: str, /) -> object:
        return None


@contextmanager
def progress(total: int, label: str | None, *, unit: str = "", done: int = 0) -> Iterator[Bar]:
    """A bar on stderr that shows rate and time left; nothing if `label` is None.

    Of the `total`, `done` were done before and do not count in the rate.
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
    """Bars of tqdm, with a lock for this process only and without tqdm's monitor thread.

    tqdm's own lock is shared with forked processes. If one is killed while it holds the lock, or
    forks while the monitor thread does, every later bar would wait forever.
    """
    from tqdm import tqdm

    class Own(tqdm):  # type: ignore[misc]
        monitor_interval = 0

    Own.set_lock(RLock())
    return Own

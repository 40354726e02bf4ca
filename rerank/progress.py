"""One progress bar for every step that takes longer than two seconds; silent without a label."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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
    from tqdm import tqdm

    slow = 0.5 if sys.stderr.isatty() else 10.0  # a log file wants fewer lines
    with tqdm(
        total=total, initial=done, desc=label, unit=unit or "it", mininterval=slow, ascii=" ="
    ) as bar:
        yield bar

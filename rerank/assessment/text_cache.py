"""A cache for functions of texts that limits the memory, not the number of results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import TypeVar

LEAST = 512  # characters that texts count for, at least
Made = TypeVar("Made")


def cached_by_length(most: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Cache a function of texts: results of the latest texts, up to `most` characters in total.

    Unlike `lru_cache`, which counts calls, this bounds memory for long texts. Safe to call from
    many threads.
    """

    def decorate(function: Callable[..., Made]) -> Callable[..., Made]:
        found: OrderedDict[tuple[str, ...], tuple[Made, int]] = OrderedDict()
        held, lock = 0, Lock()

        @wraps(function)
        def cached(*texts: str) -> Made:
            nonlocal held
            with lock:
                if texts in found:
                    found.move_to_end(texts)
                    return found[texts][0]
            made, length = function(*texts), max(LEAST, sum(map(len, texts)))
            with lock:
                if texts not in found and length <= most:
                    found[texts] = made, length
                    held += length
                while held > most:
                    held -= found.popitem(last=False)[1][1]
            return made

        return cached

    return decorate

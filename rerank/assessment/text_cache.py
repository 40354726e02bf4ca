"""A cache for functions of texts that limits the memory, not the number of results."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import TypeVar

OVERHEAD_BYTES = 512  # of an entry, about
WORD_BYTES = 256  # that a different word takes in a dictionary of lists, about
Result = TypeVar("Result")


def cached_by_bytes(
    max_bytes: int, bytes_of: Callable[[Result], int]
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Cache a function of texts: the latest texts with their results, `max_bytes` at most in all.

    `bytes_of` says about how many a result takes.

    Unlike `lru_cache`, which counts calls, this bounds memory for long texts. Safe to call from
    many threads.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        results: OrderedDict[tuple[str, ...], tuple[Result, int]] = OrderedDict()
        held, lock = 0, Lock()

        @wraps(function)
        def cached(*texts: str) -> Result:
            nonlocal held
            with lock:
                if texts in results:
                    results.move_to_end(texts)
                    return results[texts][0]
            result = function(*texts)
            size = OVERHEAD_BYTES + sum(map(sys.getsizeof, texts)) + bytes_of(result)
            with lock:
                if texts not in results and size <= max_bytes:
                    results[texts] = result, size
                    held += size
                while held > max_bytes:
                    held -= results.popitem(last=False)[1][1]
            return result

        return cached

    return decorate

"""A cache for functions of texts that limits the memory, not the number of results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import TypeVar

MIN_CHARACTERS = 512  # shorter texts count as this many
Result = TypeVar("Result")


def cached_by_length(
    max_characters: int,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Cache a function of texts: results of the latest texts, `max_characters` at most in all.

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
            result, length = function(*texts), max(MIN_CHARACTERS, sum(map(len, texts)))
            with lock:
                if texts not in results and length <= max_characters:
                    results[texts] = result, length
                    held += length
                while held > max_characters:
                    held -= results.popitem(last=False)[1][1]
            return result

        return cached

    return decorate

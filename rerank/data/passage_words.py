"""The words of a passage and where they stand, cached: many queries bring, or find, a passage.

Only the beginning of a title and of a text is read, however long they are.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from types import MappingProxyType
from typing import TypeVar

from rerank.data.words import beginning, words, words_in_sentences
from rerank.types import Passage

CACHED_BYTES = 2**28  # of the words of passages
OVERHEAD_BYTES = 512  # of an entry of a cache, about
WORD_BYTES = 256  # that a different word takes in a dictionary of lists, about
PLACE_BYTES = 48  # that one more place of a word takes
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


@dataclass(frozen=True, slots=True)
class PassageWords:
    """The words of a passage as BM25 and the coverage features need them: where each one is."""

    title: Mapping[str, int]  # how often each word is in it
    places: Mapping[str, Sequence[int]]  # of each word of the text, counted in words
    sentence_at: Sequence[int]  # the number of the sentence at each place
    length: int  # words of title and text

    def count(self, word: str) -> int:
        """How often a word is in the title and the text."""
        return self.title.get(word, 0) + len(self.places.get(word, ()))

    def only(self, asked: Collection[str]) -> PassageWords:
        """The same of some words alone, in a few bytes for each place."""
        title = {word: self.title[word] for word in asked if word in self.title}
        places = {word: array("i", self.places[word]) for word in asked if word in self.places}
        return PassageWords(title, places, self.sentence_at, self.length)


def bytes_of_words(found: PassageWords) -> int:
    """About how many bytes the words of a passage take."""
    different = len(found.title) + len(found.places)
    return WORD_BYTES * different + PLACE_BYTES * len(found.sentence_at)


@cached_by_bytes(CACHED_BYTES, bytes_of_words)
def read_words(title: str, text: str, language: str) -> PassageWords:
    """The words of a title and a text."""
    body, sentence_at = words_in_sentences(beginning(text), language=language)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(body):
        places.setdefault(word, []).append(place)
    in_title = Counter(words(beginning(title), language=language))
    length = len(body) + in_title.total()
    return PassageWords(in_title, places, array("i", sentence_at), length)


Kept = Mapping[tuple[str, str], PassageWords]  # by title and text
_KEPT: ContextVar[Kept] = ContextVar("kept", default=MappingProxyType({}))


@contextmanager
def kept(found: Kept) -> Iterator[None]:
    """Within the block, `passage_words` has these at hand, whatever the cache has dropped."""
    token = _KEPT.set(found)
    try:
        yield
    finally:
        _KEPT.reset(token)


def passage_words(passage: Passage, language: str) -> PassageWords:
    """The words of a passage."""
    title, text = passage.title, passage.text
    return _KEPT.get().get((title, text)) or read_words(title, text, language)

"""Texts to words: the words that BM25 and the coverage features use, cached for passages.

Only the beginning of a title and of a text is read, however long they are.
"""

from __future__ import annotations

import re
import sys
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate, pairwise
from threading import Lock
from types import MappingProxyType
from typing import Protocol, TypeVar

import regex
import Stemmer

from rerank.normal_form import beginning, normal_form
from rerank.types import Passage

READ = 2**16  # characters of a passage whose words are features; ordinary ones have a few thousand
WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*")  # marks: vowel signs, combining accents
# scripts without spaces between words, and Korean, whose words carry their endings (as Lucene)
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30FC]"
CHARACTER = regex.compile(rf"{UNSPACED}\p{{M}}*+")
SPACED = rf"(?!{UNSPACED})[\p{{L}}\p{{N}}](?:(?!{UNSPACED})[\p{{L}}\p{{N}}\p{{M}}])*+"
RUN = rf"(?:{UNSPACED}\p{{M}}*+)++|{SPACED}"
RUNS = regex.compile(RUN)  # of characters of these scripts, or a word
RUN_OR_END = regex.compile(rf"({RUN})|[.!?:;\u061F\u061B\u06D4\u0964]\s|[\u3002\n]")
PERSIAN = str.maketrans("\u064a\u0643", "\u06cc\u06a9")  # yeh and kaf, typed on Arabic keyboards
ASCII_WORD = re.compile(r"[a-z0-9]+")  # the same for lower-case ASCII, in half the time
WIDE_END = re.compile("[\uff01\uff1f]")  # ends a sentence without a space; not in the normal form
SENTENCE_END = regex.compile(r"[.!?:;]\s|[\u3002\n]")  # with CJK's full stop
# a word, as the group, or the end of a sentence
WORD_OR_END = regex.compile(f"({WORD.pattern})|{SENTENCE_END.pattern}")
ASCII_WORD_OR_END = re.compile(r"([a-z0-9]+)|[.!?:;][ \t\n\r\f\v]|\n")

# so frequent that they say little of a topic; question words too, which are rare in a manual
ENGLISH = """
a about above after again against all am an and any are aren as at be because been before
being below between both but by can cannot could couldn d did didn do does doesn doing don
down during each few for from further get got had hadn has hasn have haven having he her
here hers herself him himself his how i if in into is isn it its itself just ll m may me
might more most must mustn my myself no nor not now o of off on once only or other our
ours ourselves out over own please re s same shall shan she should shouldn so some such t
tell than that the their theirs them themselves then there these they this those through
to too under until up ve very was wasn we were weren what when where which while who whom
why will with won would wouldn y you your yours yourself yourselves
"""

STOP_WORDS = {"english": frozenset(ENGLISH.split())}  # by language, if there is a list for it
# abbreviations whose full stop ends no sentence; those that end none before a number
SHORT = (
    *(r"e\.g", r"i\.e", "cf", "vs", "Dr", "Mr", "Mrs", "No", "Fig", "approx", "ca", "bzw", "vgl"),
    *(r"z\.\sB", r"z\.B", r"d\.\sh", r"d\.h", r"u\.\sa", r"u\.a"),
)
NUMBERED = ("no", "nr", "art", "abs", "fig", "figs", "sec", "vol", "p", "pp", "eq")
# what goes on behind a German ordinal, and behind the first letter of "z. B." and the like
ORDINAL = "[a-zäöü]|Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dez"
SPLIT = r"(?<=\b[zdu]\.)\s(?:B|h|a)\."


def sentence_end(next_one: str) -> str:
    """A regular expression of what parts two sentences; one of what the `next_one` begins with."""
    not_after = "".join(rf"(?<!\b{short}\.)" for short in SHORT)
    numbered = "|".join(rf"(?<=\b(?i:{short})\.)" for short in NUMBERED)
    ordinal = rf"(?:(?<=\b\d\.)|(?<=\b\d\d\.))\s+(?:{ORDINAL})"
    goes_on = rf"(?!(?:{numbered})\s+\d|{ordinal}|{SPLIT})"
    return rf"{not_after}{goes_on}(?<=[.!?])[\"'”’)]*\s+{next_one}|(?<=[。！？])"


class Lexicon(Protocol):
    """How words are stemmed and weighed. An index is one."""

    language: str  # Snowball stemmer of the words, or "none": see `words`

    def idf(self, word: str, /) -> float:
        """The inverse document frequency of a stemmed word; high for an unknown one."""


def words(text: str, *, language: str = "english") -> list[str]:
    """Stemmed lower-case words in order; underscores and punctuation separate.

    Stems are Snowball's (Porter 2001); `language` "none" means no stemming. Except in "english", a
    run of a script without spaces gives its pairs of neighbours, as Lucene's CJKAnalyzer does, and
    case is folded as Unicode says.
    """
    return _stems(_split(text, language), language)


def content_words(text: str, *, language: str = "english") -> list[str]:
    """The same words without the language's stop words, if it has a list of them."""
    stop = STOP_WORDS.get(language, frozenset())
    return _stems([w for w in _split(text, language) if w not in stop], language)


def words_in_sentences(text: str, *, language: str = "english") -> tuple[list[str], list[int]]:
    """The same words, and for each the number of its sentence, from 0.

    A sentence ends with `. ! ? : ;` and a space, with a full-width stop, or with the line, and has
    a number without any word, too.
    """
    normal = _normalise(WIDE_END.sub(r"\g<0>\n", text), language)
    of_any = WORD_OR_END if language == "english" else RUN_OR_END
    found = (ASCII_WORD_OR_END if normal.isascii() else of_any).findall(normal)
    ended = accumulate(int(not word) for word in found)
    runs = [(word, number) for word, number in zip(found, ended, strict=True) if word]
    if language != "english" and not normal.isascii():
        runs = [(word, number) for run, number in runs for word in _pairs(run)]
    return _stems([word for word, _ in runs], language), [number for _, number in runs]


def _split(text: str, language: str) -> list[str]:
    normal = _normalise(text, language)
    if normal.isascii():
        return ASCII_WORD.findall(normal)
    if language == "english":
        return list(WORD.findall(normal))
    return [word for run in RUNS.findall(normal) for word in _pairs(run)]


def _pairs(run: str) -> list[str]:
    """Neighbouring characters of a run of a script without spaces; another word as it is."""
    if not CHARACTER.match(run):
        return [run]
    characters = CHARACTER.findall(run)
    return [a + b for a, b in pairwise(characters)] or characters


def _normalise(text: str, language: str) -> str:
    normal = normal_form(text)
    if language == "english" or normal.isascii():
        return normal.lower()
    folded = normal.casefold().replace("i\u0307", "i")  # of a Turkish capital
    return folded if language == "arabic" else folded.translate(PERSIAN)


_STEMMERS = threading.local()  # one by language and thread: it keeps the stems that it has seen


def _stems(tokens: list[str], language: str) -> list[str]:
    if language == "none":
        return tokens
    stemmers = _STEMMERS.__dict__
    if language not in stemmers:
        stemmers[language] = Stemmer.Stemmer(language)
    return list(stemmers[language].stemWords(tokens))


CACHED_BYTES = 2**28  # of the words of passages
OVERHEAD_BYTES = 512  # of an entry of a cache, about
WORD_BYTES = 256  # that a different word takes in a dictionary of lists, about
PLACE_BYTES = 48  # that one more place of a word takes
Result = TypeVar("Result")


def cached_by_bytes(
    max_bytes: int, bytes_of: Callable[[Result], int]
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Cache a function of texts: the latest texts with their results, `max_bytes` at most in all,
    by `bytes_of` a result. Safe to call from many threads.
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

    def counts(self, asked: Set[str]) -> dict[str, int]:
        """How often each of some words is in the title and the text, if it is."""
        held = (self.title.keys() & asked) | (self.places.keys() & asked)
        return {word: self.title.get(word, 0) + len(self.places.get(word, ())) for word in held}

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
    body, sentence_at = words_in_sentences(beginning(text, READ), language=language)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(body):
        places.setdefault(word, []).append(place)
    in_title = Counter(words(beginning(title, READ), language=language))
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

"""Texts to words: the words that BM25 and the coverage features use."""

from __future__ import annotations

import re
import threading
from itertools import accumulate
from typing import Protocol

import regex
import Stemmer

from rerank.normal_form import normal_form

READ = 2**16  # characters of a passage whose words are features; ordinary ones have a few thousand
LONGEST_FORM = 18  # characters that one becomes in the normal form, at most
WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*")  # marks: vowel signs, combining accents
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

STOP_WORDS = {"english": frozenset(ENGLISH.split())}
"""By language; one without a list has no stop words."""


# abbreviations whose full stop ends no sentence
SHORT = (r"e\.g", r"i\.e", "cf", "vs", "Dr", "Mr", "Mrs", "No", "Fig")


def sentence_end(next_one: str) -> str:
    """A regular expression of what parts two sentences; one of what the `next_one` begins with."""
    not_after = "".join(rf"(?<!\b{short}\.)" for short in SHORT)
    return rf"{not_after}(?<=[.!?])[\"'”’)]*\s+{next_one}|(?<=[。！？])"


class Lexicon(Protocol):
    """How words are stemmed and weighed. An index is one."""

    language: str  # Snowball stemmer of the words, or "none"

    def idf(self, word: str, /) -> float:
        """The inverse document frequency of a stemmed word; high for an unknown one."""


def beginning(text: str) -> str:
    """The first `READ` characters; fewer of a text whose normal form is much longer."""
    read = text[:READ]
    return read if len(normal_form(read)) <= 2 * READ else read[: READ // LONGEST_FORM]


def words(text: str, *, language: str = "english") -> list[str]:
    """Stemmed lower-case words in order; underscores and punctuation separate.

    Stems are Snowball's (Porter 2001). `language` is a Snowball name, or "none" for no stemming. In
    scripts without spaces between words, a run of characters is one word: there, rely on the dense
    stage.
    """
    return _stems(_split_words(_normalise(text)), language)


def content_words(text: str, *, language: str = "english") -> list[str]:
    """The same words without the language's stop words, if it has a list of them."""
    stop = STOP_WORDS.get(language, frozenset())
    return _stems([w for w in WORD.findall(_normalise(text)) if w not in stop], language)


def words_in_sentences(text: str, *, language: str = "english") -> tuple[list[str], list[int]]:
    """The same words, and for each the number of its sentence, from 0.

    A sentence ends with `. ! ? : ;` and a space, with a full-width stop, or with the line. One
    without a word has a number too.
    """
    normal = _normalise(WIDE_END.sub(r"\g<0>\n", text))
    found = (ASCII_WORD_OR_END if normal.isascii() else WORD_OR_END).findall(normal)
    ended = accumulate(int(not word) for word in found)
    numbers = [number for word, number in zip(found, ended, strict=True) if word]
    return _stems([word for word in found if word], language), numbers


def _split_words(normal: str) -> list[str]:
    return ASCII_WORD.findall(normal) if normal.isascii() else WORD.findall(normal)


def _normalise(text: str) -> str:
    return normal_form(text).lower()


def _stems(tokens: list[str], language: str) -> list[str]:
    return tokens if language == "none" else list(_STEMMERS.of(language).stemWords(tokens))


class _Stemmers(threading.local):
    """A stemmer per language and thread: it keeps the stems of words that it has seen."""

    def __init__(self) -> None:
        self.by_language: dict[str, Stemmer.Stemmer] = {}

    def of(self, language: str) -> Stemmer.Stemmer:
        """The stemmer of a language; a stemmer may be used by one thread only."""
        if language not in self.by_language:
            self.by_language[language] = Stemmer.Stemmer(language)
        return self.by_language[language]


_STEMMERS = _Stemmers()

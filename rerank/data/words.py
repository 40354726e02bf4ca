"""Texts to words: the words that BM25 and the coverage features use."""

from __future__ import annotations

import re
import threading
from itertools import accumulate, pairwise
from typing import Protocol

import regex
import Stemmer

from rerank.normal_form import normal_form

READ = 2**16  # characters of a passage whose words are features; ordinary ones have a few thousand
LONGEST_FORM = 18  # characters that one becomes in the normal form, at most
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

    language: str  # Snowball stemmer of the words, or "none": see `words`

    def idf(self, word: str, /) -> float:
        """The inverse document frequency of a stemmed word; high for an unknown one."""


def beginning(text: str) -> str:
    """The first `READ` characters; fewer of a text whose normal form is much longer."""
    read = text[:READ]
    return read if len(normal_form(read)) <= 2 * READ else read[: READ // LONGEST_FORM]


def words(text: str, *, language: str = "english") -> list[str]:
    """Stemmed lower-case words in order; underscores and punctuation separate.

    Stems are Snowball's (Porter 2001). `language` is a Snowball name, or "none" for no stemming.
    Except in "english", a run of characters of a script without spaces gives its pairs of
    neighbours, as Lucene's CJKAnalyzer does, and case is folded as Unicode says.
    """
    return _stems(_split(text, language), language)


def content_words(text: str, *, language: str = "english") -> list[str]:
    """The same words without the language's stop words, if it has a list of them."""
    stop = STOP_WORDS.get(language, frozenset())
    return _stems([w for w in _split(text, language) if w not in stop], language)


def words_in_sentences(text: str, *, language: str = "english") -> tuple[list[str], list[int]]:
    """The same words, and for each the number of its sentence, from 0.

    A sentence ends with `. ! ? : ;` and a space, with a full-width stop, or with the line. One
    without a word has a number too.
    """
    normal = _normalise(WIDE_END.sub(r"\g<0>\n", text), language)
    of_any = WORD_OR_END if language == "english" else RUN_OR_END
    found = (ASCII_WORD_OR_END if normal.isascii() else of_any).findall(normal)
    ended = accumulate(int(not word) for word in found)
    runs = [(word, number) for word, number in zip(found, ended, strict=True) if word]
    if language == "english" or normal.isascii():
        return _stems([word for word, _ in runs], language), [number for _, number in runs]
    pairs = [(word, number) for run, number in runs for word in _pairs(run)]
    return _stems([word for word, _ in pairs], language), [number for _, number in pairs]


def _split(text: str, language: str) -> list[str]:
    normal = _normalise(text, language)
    if normal.isascii():
        return ASCII_WORD.findall(normal)
    if language == "english":
        return list(WORD.findall(normal))
    return [word for run in RUNS.findall(normal) for word in _pairs(run)]


def _pairs(run: str) -> list[str]:
    """The neighbouring characters of a run of a script without spaces; another word as it is."""
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

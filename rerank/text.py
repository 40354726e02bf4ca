"""Words of a text as BM25 and the coverage features see them; nothing of models or scores."""

from __future__ import annotations

import hashlib
import unicodedata
from itertools import chain, islice

import regex
import Stemmer

WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*")  # marks: vowel signs, combining accents
SENTENCE_END = regex.compile(r"[.!?:;]\s|[\u3002\uff01\uff1f\n]")  # with CJK's full-width stops


def words(text: str, *, language: str = "english") -> list[str]:
    """Stemmed lower-case words in order; underscores and punctuation separate.

    Stems are Snowball's (Porter 2001). `language` is a Snowball name, or "none" for no stemming.
    Scripts without spaces between words give a word a run: there the dense stage must find.
    """
    return _stems(WORD.findall(_normal(text)), language)


def sentence_words(text: str, *, language: str = "english") -> list[list[str]]:
    """The same words, a list a sentence.

    A sentence ends with `. ! ? : ;` and a space, with a full-width stop, or with the line.
    """
    parts = [WORD.findall(part) for part in SENTENCE_END.split(_normal(text))]
    stems = iter(_stems(list(chain.from_iterable(parts)), language))
    return [list(islice(stems, len(part))) for part in parts]


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).lower()


def _stems(found: list[str], language: str) -> list[str]:
    return found if language == "none" else list(Stemmer.Stemmer(language).stemWords(found))


def query_hash(text: str) -> str:
    """16 hex digits of the sha256, case and spaces aside: names a query without showing it."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]

"""Words of a text as BM25 and the coverage features see them; nothing of models or scores."""

from __future__ import annotations

import hashlib
import unicodedata

import regex
import Stemmer

WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*")  # marks: vowel signs, combining accents


def words(text: str, *, language: str = "english") -> list[str]:
    """Stemmed lower-case words in order; underscores and punctuation separate.

    Stems are Snowball's (Porter 2001). `language` is a Snowball name, or "none" for no stemming.
    Scripts without spaces between words give a word a run: there the dense stage must find.
    """
    found: list[str] = WORD.findall(unicodedata.normalize("NFC", text).lower())
    if language == "none":
        return found
    return list(Stemmer.Stemmer(language).stemWords(found))


def query_hash(text: str) -> str:
    """16 hex digits of the sha256, case and spaces aside: names a query without showing it."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]

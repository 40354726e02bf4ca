"""Checks of input texts, and the words that BM25 and the coverage features use."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from itertools import chain, islice
from threading import Lock
from typing import Any, TypeVar

import regex
import Stemmer

from rerank.data.stop_words import STOP_WORDS
from rerank.errors import InputError

WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*")  # marks: vowel signs, combining accents
MARKS = regex.compile(r"(\p{M}{30})\p{M}++")  # no language writes so many on a letter
LEAST = 512  # characters that texts count for in a cache, at least
Made = TypeVar("Made")
ASCII_WORD = re.compile(r"[a-z0-9]+")  # the same for lower-case ASCII, in half the time
SENTENCE_END = regex.compile(r"[.!?:;]\s|[\u3002\uff01\uff1f\n]")  # with CJK's full-width stops
ASCII_SENTENCE_END = re.compile(r"[.!?:;][ \t\n\r\f\v]|\n")


def remembered(most: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Cache a function of texts: results of the latest texts, up to `most` characters in total.

    Unlike `lru_cache`, which counts calls, this bounds memory for long texts. Safe to call from
    many threads.
    """

    def decorate(function: Callable[..., Made]) -> Callable[..., Made]:
        found: OrderedDict[tuple[str, ...], tuple[Made, int]] = OrderedDict()
        held, lock = 0, Lock()

        @wraps(function)
        def remembering(*texts: str) -> Made:
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

        return remembering

    return decorate


def words(text: str, *, language: str = "english") -> list[str]:
    """Stemmed lower-case words in order; underscores and punctuation separate.

    Stems are Snowball's (Porter 2001). `language` is a Snowball name, or "none" for no stemming. In
    scripts without spaces between words, a run of characters is one word: there, rely on the dense
    stage.
    """
    return _stems(_found(_normal(text)), language)


def content_words(text: str, *, language: str = "english") -> list[str]:
    """The same words without the language's stop words, if it has a list of them."""
    stop = STOP_WORDS.get(language, frozenset())
    return _stems([w for w in WORD.findall(_normal(text)) if w not in stop], language)


def sentence_words(text: str, *, language: str = "english") -> list[list[str]]:
    """The same words, one list per sentence.

    A sentence ends with `. ! ? : ;` and a space, with a full-width stop, or with the line.
    """
    normal = _normal(text)
    end = ASCII_SENTENCE_END if normal.isascii() else SENTENCE_END
    parts = [_found(part) for part in end.split(normal)]
    stems = iter(_stems(list(chain.from_iterable(parts)), language))
    return [list(islice(stems, len(part))) for part in parts]


def _found(normal: str) -> list[str]:
    return ASCII_WORD.findall(normal) if normal.isascii() else WORD.findall(normal)


def _normal(text: str) -> str:
    """Lower case, with composed characters.

    Composing takes time that grows with the square of a run of combining marks; so runs are cut, as
    in the Stream-Safe Text Format of Unicode's UAX #15.
    """
    return unicodedata.normalize("NFC", MARKS.sub(r"\1", text)).lower()


def _stems(found: list[str], language: str) -> list[str]:
    return found if language == "none" else list(Stemmer.Stemmer(language).stemWords(found))


def to_json(value: Any) -> str:
    """One line of JSON, keys in order: the same value, the same line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def query_hash(text: str) -> str:
    """16 hex digits of the sha256, ignoring case and spaces: names a query without showing it."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]


def as_text(name: str, value: object, *, most: int | None = None, empty: bool = False) -> str:
    """The value of a field, if it is text that can be stored; it must have words unless `empty`.

    Raises:
        InputError: not text, text without words, with a lone surrogate, or of more than `most`
            characters. The message names the field.
    """
    if not isinstance(value, str):
        raise InputError(f"{name!r} should be text, got {kind(value)}")
    if most is not None and len(value) > most:
        raise InputError(f"{name!r} has {len(value)} characters, at most {most} are taken")
    if not empty and not value.strip():
        raise InputError(f"{name!r} is empty")
    if not can_be_written(value):
        raise InputError(f"{name!r} holds a lone surrogate, which is not text")
    return value


def can_be_written(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def kind(value: object) -> str:
    """The type of a value, in JSON's terms if it has one."""
    names = {type(None): "null", dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return names.get(type(value), type(value).__name__)

"""Checks of texts, names of JSON types for messages, and canonical forms of values and queries."""

from __future__ import annotations

import hashlib
import json
from math import isnan
from typing import Any
from urllib.parse import urlsplit

import regex

from rerank.errors import InputError

PANDAS_NAN = "NaN (of pandas?)"
VISIBLE = regex.compile(r"[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Zs}]")


def as_text(name: str, value: object, *, max_length: int | None = None, empty: bool = False) -> str:
    """The value of a field, if it is text that can be stored; it must have words unless `empty`."""
    if isinstance(value, float) and isnan(value):
        raise InputError(f"{name} is {PANDAS_NAN}; expected text or null")
    if not isinstance(value, str):
        raise InputError(f"{name!r} should be text, got {json_type(value)}")
    if max_length is not None and len(value) > max_length:
        raise InputError(f"{name!r} has {len(value)} characters, at most {max_length} are taken")
    if not empty and not has_text(value):
        raise InputError(f"{name!r} is empty")
    if not is_encodable(value):
        raise InputError(f"{name!r} holds a lone surrogate, which is not text")
    return value


def has_text(text: str) -> bool:
    """Whether it holds a visible character: not only spaces, controls and zero-width signs."""
    return VISIBLE.search(text) is not None


def is_url(text: str) -> bool:
    """Whether it is an http URL with a host."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  # raises if it is not a port
    except ValueError:
        return False
    printed = text.isprintable() and " " not in text
    return printed and parts.scheme in ("http", "https") and bool(parts.hostname)


def is_encodable(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_type(value: object) -> str:
    """The type of a value, in JSON's terms if it has one."""
    if isinstance(value, float) and isnan(value):
        return PANDAS_NAN
    names: dict[type, str] = {
        **{type(None): "null", dict: "an object", list: "a list", str: "text"},
        **{bool: "a boolean", int: "a whole number", float: "a number"},
    }
    return names.get(type(value), type(value).__name__)


def to_json(value: Any) -> str:
    """One line of JSON, keys in order: the same value, the same line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def query_hash(text: str) -> str:
    """16 hex digits of the sha256, ignoring case and spaces: names a query without showing it."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]


def group_hash(name: str) -> str:
    """The same for a `metadata.group`; it is never the hash of a query that people ask."""
    return query_hash(f"metadata.group: {name}")

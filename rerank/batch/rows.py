"""One row of an input to what is to be scored, or to why it cannot be.

A row is a mapping of plain values, wherever it came from: it knows nothing of files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerank.text import as_text, kind
from rerank.types import Given, InputError, Passage, Query, named

LONGEST_ROW = 2**23  # bytes of a line
LONGEST_PASSAGES = 2**22  # characters of a row's passages, titles included
LONGEST_PASSAGE = 2**19  # characters of one
LONGEST_ID = 512  # characters
LONGEST_QUERY = 10_000  # characters; a cross-encoder reads some hundreds
MOST_PASSAGES = 1_000
SHOWN = 200  # characters of what came, in a reason

COLUMNS = ("_id", "text", "passages", "documents", "metadata")  # what is looked at


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that cannot be scored: its line (from 1), why, and its id where it has one."""

    line: int
    reason: str
    query_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The line of the side file."""
        named = {} if self.query_id is None else {"_id": self.query_id}
        return {"line": self.line, **named, "reason": self.reason}


Item = Query | Given


@dataclass(frozen=True, slots=True)
class Asked:
    """A row that can be scored: its line (from 1), and what it asks for."""

    line: int
    item: Item


Row = Asked | Rejected


def parse(line: int, row: object, *, correct_by: str = "") -> Row:
    """What a decoded row asks for: a query for the index, or one with candidates of its own.

    `_id` is text or a whole number, `text` is text; `passages`, or `documents`, is a list of texts
    or of `{"_id" or "doc_id", "title", "text", "logit" or "score"}`, of which `text` must be there.
    A passage without an id gets its position, from 0; all of them have a logit, or none.
    Of `metadata`, an object, `correct_by` is read, what the model corrects by; without one it is
    not looked at. Binary values, as Parquet may hold, are read as UTF-8. An id may stand twice: a
    file of what was asked in a night says the same things again, and each row is answered for
    itself.
    """
    if not isinstance(row, Mapping):
        return Rejected(line, f"expected a JSON object, got {kind(row)}")
    try:
        query_id = _id(row, "_id")
    except InputError as error:
        return Rejected(line, str(error))
    try:
        return Asked(line, _item(query_id, row, correct_by))
    except InputError as error:
        return Rejected(line, str(error), query_id)


def _item(query_id: str, row: Mapping[str, Any], correct_by: str) -> Item:
    text = _text(row, "text", most=LONGEST_QUERY)
    query = Query(query_id, text, _metadata(row, correct_by) if correct_by else {})
    named = [key for key in ("passages", "documents") if row.get(key) is not None]
    if not named:
        return query
    if len(named) > 1:
        raise InputError("has both 'passages' and 'documents'; expected one of them")
    given = row[named[0]]
    if not isinstance(given, list):
        raise InputError(f"{named[0]!r} should be a list, got {kind(given)}")
    if len(given) > MOST_PASSAGES:
        raise InputError(f"{named[0]!r} holds {len(given)}, at most {MOST_PASSAGES} can be read")
    read = [_passage(i, value, f"{named[0]}[{i}]") for i, value in enumerate(given)]
    passages = tuple(passage for passage, _ in read)
    length = sum(len(p.title) + len(p.text) for p in passages)
    if length > LONGEST_PASSAGES:
        raise InputError(f"{named[0]!r} holds {length} characters, at most {LONGEST_PASSAGES}")
    logits = [logit for _, logit in read if logit is not None]
    if logits and len(logits) < len(passages):
        raise InputError(f"{len(logits)} of {len(passages)} passages have a logit; all, or none")
    return Given(query, passages, np.array(logits, dtype=np.float64) if logits else None)


def _metadata(row: Mapping[str, Any], correct_by: str) -> dict[str, str]:
    """The query's metadata as far as it is its kind, and nothing else of it.

    Arrow's maps come as lists of pairs.
    """
    found = row.get("metadata")
    if isinstance(found, list) and all(isinstance(p, tuple) and len(p) == 2 for p in found):
        found = dict(found)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InputError(f"'metadata' should be an object, got {kind(found)}")
    name = named(found, correct_by)
    if len(name) > LONGEST_ID:
        raise InputError(
            f"metadata {correct_by!r} has {len(name)} characters, at most {LONGEST_ID}"
        )
    return {correct_by: name}


def _passage(position: int, value: object, where: str) -> tuple[Passage, float | None]:
    if isinstance(value, (str, bytes)):
        return Passage(str(position), "", _text({where: value}, where)), None
    if not isinstance(value, Mapping):
        raise InputError(f"{where} should be text or an object, got {kind(value)}")
    try:
        key = next((k for k in ("_id", "doc_id") if value.get(k) is not None), None)
        doc_id = str(position) if key is None else _id(value, key)
        title = "" if value.get("title") is None else _text(value, "title", empty=True)
        return Passage(doc_id, title, _text(value, "text")), _logit(value)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _logit(value: Mapping[str, Any]) -> float | None:
    key = next((k for k in ("logit", "score") if value.get(k) is not None), None)
    if key is None:
        return None
    number = value[key]
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InputError(f"{key!r} should be a number, got {kind(number)}")
    try:
        finite = math.isfinite(number)
    except OverflowError:
        finite = False
    if not finite:
        raise InputError(f"{key!r} is no finite number")
    return float(number)


def _id(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64:
        return str(value)
    found = _text(row, key, most=LONGEST_ID)
    if found != found.strip() or any(c in found for c in "\t\n\r"):
        raise InputError(f"{key!r} {shown(found)} holds a tab, a line end or outer spaces")
    return found


def _text(
    row: Mapping[str, Any], key: str, *, most: int = LONGEST_PASSAGE, empty: bool = False
) -> str:
    if key not in row:
        raise InputError(f"{key!r} is missing")
    value = row[key]
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise InputError(f"{key!r} holds bytes that are no UTF-8") from None
    return as_text(key, value, most=most, empty=empty)


def shown(value: str) -> str:
    """The beginning of a text, as a reason quotes it."""
    return repr(value if len(value) <= SHOWN else value[:SHOWN] + "…")

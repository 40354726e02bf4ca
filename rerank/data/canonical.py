"""Canonical forms: equal values give the same JSON line, equal queries the same hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def to_json(value: Any) -> str:
    """One line of JSON, keys in order: the same value, the same line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def query_hash(text: str) -> str:
    """16 hex digits of the sha256, ignoring case and spaces: names a query without showing it."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]


def group_hash(name: str) -> str:
    """The same for a `metadata.group`; it is never the hash of a query that people ask."""
    return query_hash(f"metadata.group: {name}")

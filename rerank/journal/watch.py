"""What a person watches: answers day by day, and those that wait for a judgement."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import select

from rerank.journal.schema import JOURNAL
from rerank.journal.store import DAY, JournalStore

LARGEST = 200_000  # newest answers that are counted by day
_C = JOURNAL.c


@dataclass(frozen=True, slots=True)
class Day:
    """The answers of one day (UTC)."""

    day: str  # such as 2026-01-31
    questions: int
    accepted: int
    confidence: float  # mean
    levels: dict[str, int]  # how many answers of each


def by_day(store: JournalStore, *, days: float) -> list[Day]:
    """The days that have answers, oldest first, of the last `days`.

    Raises:
        JournalError: the database cannot be used.
    """
    chosen = (
        select(_C.time, _C.confidence, _C.accepted, _C.level)
        .where(_C.time >= time.time() - days * DAY)
        .order_by(_C.time.desc())
        .limit(LARGEST)
    )
    rows = store.rows(chosen)
    number = np.array([int(row["time"] // DAY) for row in rows], dtype=np.int64)
    found = []
    for one in np.unique(number).tolist():
        own = [rows[i] for i in np.flatnonzero(number == one)]
        levels = [row["level"] for row in own]
        found.append(
            Day(
                datetime.fromtimestamp(one * DAY, UTC).strftime("%Y-%m-%d"),
                len(own),
                sum(row["accepted"] for row in own),
                float(np.mean([row["confidence"] for row in own])),
                {level: levels.count(level) for level in dict.fromkeys(levels)},
            )
        )
    return found


def waiting(store: JournalStore, *, most: int = 50) -> list[dict[str, Any]]:
    """The newest searches below the advisory threshold that nobody has judged, newest first.

    Each with `id`, `time`, `question` (None where texts are left out), `document`, `doc_id`,
    `confidence` and `level`.

    Raises:
        JournalError: the database cannot be used.
    """
    chosen = (
        select(
            _C.answer_id.label("id"),
            _C.time,
            _C.question,
            _C.top_document.label("document"),
            _C.top_doc_id.label("doc_id"),
            _C.confidence,
            _C.level,
        )
        .where(_C.mode == "search", _C.accepted.is_(False), _C.right.is_(None))
        .order_by(_C.entry_id.desc())
        .limit(most)
    )
    return [dict(row) for row in store.rows(chosen)]

"""The data of the Watch page: answers day by day, and those that wait for a judgement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Integer, Select, case, cast, exists, func, select

from rerank.journal.schema import JOURNAL
from rerank.journal.store import DAY, JournalStore, Row

_C = JOURNAL.c


@dataclass(frozen=True, slots=True)
class Day:
    """The answers of one day (UTC)."""

    day: str  # such as 2026-01-31
    questions: int
    accepted: int
    confidence: float  # mean
    levels: dict[str, int]  # number of answers by level


def by_day(store: JournalStore, *, days: float) -> list[Day]:
    """The days (UTC) that have answers, oldest first, of the last `days`.

    Raises:
        JournalError: the database cannot be used.
    """
    rows = store.rows(_levels_by_day(time.time() - days * DAY))
    by_number = groupby(rows, key=lambda row: int(row["day"]))
    return [_day(number, list(of_day)) for number, of_day in by_number]


def _levels_by_day(since: float) -> Select[Any]:
    """The answers since a time, counted by day and level; days are numbered from 1970 on."""
    days = _C.time / DAY
    near = cast(days, Integer)  # PostgreSQL rounds, SQLite cuts off
    return (
        select(
            (near - case((near > days, 1), else_=0)).label("day"),
            _C.level,
            func.count().label("questions"),
            func.sum(case((_C.accepted, 1), else_=0)).label("accepted"),
            func.sum(_C.confidence).label("confidence"),
        )
        .where(_C.time >= since)
        .group_by("day", _C.level)
        .order_by("day", _C.level)
    )


def _day(number: int, rows: Sequence[Row]) -> Day:
    """The answers of a day, numbered from 1970 on, from its rows by level."""
    questions = sum(row["questions"] for row in rows)
    return Day(
        datetime.fromtimestamp(number * DAY, UTC).strftime("%Y-%m-%d"),
        questions,
        sum(row["accepted"] for row in rows),
        sum(row["confidence"] for row in rows) / questions,
        {row["level"]: row["questions"] for row in rows},
    )


def waiting(store: JournalStore, *, model: str, limit: int = 50) -> list[dict[str, Any]]:
    """Searches below the advisory threshold whose first passage nobody has judged.

    They are those of the `model` of this version. Each question once, with its newest answer; the
    newest first. Keys: `id`, `time`, `question` (None if texts are left out), `document`, `doc_id`,
    `confidence`, `level`, and `times`, the number of such answers.

    Raises:
        JournalError: the database cannot be used.
    """
    return [dict(row) for row in store.rows(_waiting(model, limit))]


def _waiting(model: str, limit: int) -> Select[Any]:
    judged = JOURNAL.alias()
    same = (  # a judgement of the same first passage, and not of a generated answer
        judged.c.mode == "search",
        judged.c.answer_hash.is_(None),
        judged.c.question_hash == _C.question_hash,
        judged.c.top_doc_id.is_not_distinct_from(_C.top_doc_id),
    )
    repeated = (
        select(func.max(_C.entry_id).label("newest"), func.count().label("times"))
        .where(_C.mode == "search", _C.model == model)
        .where(_C.accepted.is_(False), _C.right.is_(None))
        .where(_C.answer_hash.is_(None))
        .where(~exists().where(judged.c.right.is_not(None), *same))
        .group_by(_C.question_hash)
        .subquery()
    )
    return (
        select(
            _C.answer_id.label("id"),
            _C.time,
            _C.question,
            _C.top_document.label("document"),
            _C.top_doc_id.label("doc_id"),
            _C.confidence,
            _C.level,
            repeated.c.times,
        )
        .join(repeated, _C.entry_id == repeated.c.newest)
        .order_by(_C.entry_id.desc())
        .limit(limit)
    )

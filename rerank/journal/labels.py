"""Labels from the journal: people's feedback on its answers, in the order in which it was given.

A label is about the top passage, or about a generated answer; the two are never mixed. A question
that is asked repeatedly counts with one label only, because the first label predicts the next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import select

from calibration.monitoring.sequential import AccuracyMonitor, CalibrationMonitor
from rerank.journal.entry import REFUSED
from rerank.journal.schema import JOURNAL
from rerank.journal.store import JournalStore, Row

_C = JOURNAL.c
NUMBERS = (_C.question_hash, _C.mode, _C.first_right, _C.confidence, _C.accepted)
JUDGED_PASSAGES = _C.right.is_not(None) & _C.answer_hash.is_(None)  # not of a generated answer


def newest_searches(store: JournalStore, limit: int) -> list[Row]:
    """The newest `limit` searches that were kept with their text, oldest first."""
    chosen = (
        select(_C.entry_id, _C.asked)
        .where(_C.mode == "search", _C.asked.is_not(None))
        .order_by(_C.entry_id.desc())
        .limit(limit)
    )
    return list(store.rows(chosen))[::-1]


def newest_answers(
    store: JournalStore, models: Sequence[str], limit: int | None = None
) -> list[Row]:
    """The newest labelled answer of each question by one of the `models`, oldest first.

    Refusals do not count as answers. `limit` keeps only the newest ones.
    """
    columns = (_C.question_hash, _C.right, _C.confidence, _C.attribution)
    labelled = _C.right.is_not(None) & _C.attribution.is_not(None) & (_C.decision != REFUSED)
    chosen = (
        select(*columns)
        .where(labelled & _C.model.in_(models))
        .order_by(_C.judged.desc(), _C.entry_id)
    )
    newest: dict[str, Row] = {}
    for row in store.rows(chosen):
        newest.setdefault(row["question_hash"], row)
    return list(newest.values())[:limit][::-1]


def newest_labels(store: JournalStore, *, model: str | None = None) -> list[Row]:
    """The newest label of each first passage of each question, oldest first.

    With `model`, a version, only labels of its answers.
    """
    columns = (_C.question_hash, _C.mode, _C.right, _C.asked, _C.top_doc_id, _C.entry_id)
    chosen = select(*columns).where(JUDGED_PASSAGES)
    if model is not None:
        chosen = chosen.where(_C.model == model)
    rows = store.rows(chosen.order_by(_C.judged.desc(), _C.entry_id))
    newest: dict[tuple[str, str, str | None], Row] = {}
    for row in rows:
        newest.setdefault((row["mode"], row["question_hash"], row["top_doc_id"]), row)
    return list(newest.values())[::-1]


def one_per_question(rows: Sequence[Row], limit: int | None = None) -> list[Row]:
    """The last row of each question, in their order; `limit` keeps only the last ones."""
    last: dict[tuple[str, str], Row] = {}
    for row in reversed(rows):
        last.setdefault((row["mode"], row["question_hash"]), row)
    return list(last.values())[:limit][::-1]


def label_of(row: Row) -> dict[str, Any]:
    """A row of `newest_labels` that has its text, in the format of a labels file.

    `top` is the passage that was judged; None if nothing was found.
    """
    top = None if row["top_doc_id"] is None else {"doc_id": row["top_doc_id"]}
    label = {"top": top, "right": bool(row["right"]), "chosen": True}
    return {**json.loads(row["asked"]), **label}


def monitors(
    store: JournalStore, model: str, *, target: float, level: float = 0.05
) -> tuple[AccuracyMonitor, CalibrationMonitor]:
    """Tests whether a model's accepted answers are right as often as `target`, and its calibration.

    Both tests may be looked at after every label: see `calibration.monitoring.sequential`. They
    read the first judgement of each question: one that is changed later changes no test, because
    what raised an alarm must not vanish.

    Raises:
        ValueError: a target or level outside (0, 1).
    """
    chosen = select(*NUMBERS).where(JUDGED_PASSAGES, _C.model == model)
    first: dict[tuple[str, str], Row] = {}
    for row in store.rows(chosen.order_by(_C.first_judged, _C.entry_id)):
        first.setdefault((row["mode"], row["question_hash"]), row)
    rows = list(first.values())
    right = np.array([row["first_right"] for row in rows], dtype=np.int64)
    confidence = np.array([row["confidence"] for row in rows], dtype=np.float64)
    accepted = np.array([row["accepted"] for row in rows], dtype=np.bool_)
    accuracy = AccuracyMonitor.start(target, level)
    calibrated = CalibrationMonitor.start(level)
    return accuracy.update(right[accepted]), calibrated.update(right, confidence)

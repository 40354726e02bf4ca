"""What jobs read from a journal: labels for a recalibration, and queries to check for drift.

Labels are people's feedback on answers, in the order in which it was given: about the top passage,
or about a generated answer; the two are never mixed. A question that is asked repeatedly counts
with one label only, because the first label predicts the next.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import select

from calibration.monitoring.sequential import AccuracyMonitor, CalibrationMonitor
from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import MOVED, Feedback, feedback_from, still_first
from rerank.data.records import read_query
from rerank.errors import InputError
from rerank.journal.database import JOURNAL
from rerank.journal.store import REFUSED, JournalStore, Row
from rerank.types import Query

_C = JOURNAL.c
QUESTION = ("mode", "question_hash")  # the columns by which questions are told apart
JUDGED_PASSAGES = _C.right.is_not(None) & _C.answer_hash.is_(None)  # not of a generated answer


def newest_labels(store: JournalStore, *, model: str | None = None) -> list[Row]:
    """The newest label of each first passage of each question, oldest first.

    With `model`, a version, only labels of its answers.
    """
    columns = (_C.question_hash, _C.mode, _C.right, _C.asked, _C.top_doc_id, _C.entry_id)
    chosen = select(*columns).where(JUDGED_PASSAGES)
    if model is not None:
        chosen = chosen.where(_C.model == model)
    rows = store.rows(chosen.order_by(_C.judged.desc(), _C.entry_id))
    return _first_of_each(rows, *QUESTION, "top_doc_id")[::-1]


def one_per_question(rows: Sequence[Row], limit: int | None = None) -> list[Row]:
    """The last row of each question, in their order; `limit` keeps only the last ones."""
    return _first_of_each(rows[::-1], *QUESTION)[:limit][::-1]


def _first_of_each(rows: Sequence[Row], *columns: str) -> list[Row]:
    first: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        first.setdefault(tuple(row[column] for column in columns), row)
    return list(first.values())


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
    """
    columns = (_C.question_hash, _C.mode, _C.first_right, _C.confidence, _C.accepted)
    chosen = select(*columns).where(JUDGED_PASSAGES, _C.model == model)
    judged = store.rows(chosen.order_by(_C.first_judged, _C.entry_id))
    rows = _first_of_each(judged, *QUESTION)
    right = np.array([row["first_right"] for row in rows], dtype=np.int64)
    confidence = np.array([row["confidence"] for row in rows], dtype=np.float64)
    accepted = np.array([row["accepted"] for row in rows], dtype=np.bool_)
    return (
        AccuracyMonitor.start(target, level).update(right[accepted]),
        CalibrationMonitor.start(level).update(right, confidence),
    )


def journal_labels(
    model: CalibratedReranker, journal: str, *, newest: int | None = None
) -> tuple[list[Feedback], tuple[str, ...]]:
    """The newest label of each question in a journal, and notes on labels that are left out.

    A label is about the passage that was ranked first then. If the model now ranks another one
    first, the label does not apply and is left out; an older label of the present first passage
    applies. `newest` keeps only so many of the labels that apply, the newest ones.
    """
    with JournalStore(journal) as store:
        rows, name = newest_labels(store), store.name
    left_out: Counter[str] = Counter()
    labelled: list[tuple[Row, Feedback]] = []
    for row in rows:
        if row["asked"] is None:
            left_out["the journal holds no text of their questions"] += 1
            continue
        try:
            label = feedback_from(label_of(row))
        except InputError as error:
            left_out[str(error)] += 1
            continue
        try:
            model.check(label.query)
            labelled.append((row, label))
        except InputError:
            left_out["they are of answers of another kind of model"] += 1
    again = partial(model.assess, label="ranking labelled queries")
    present = still_first([label for _, label in labelled], again)
    of_row = {
        row["entry_id"]: label
        for (row, label), applies in zip(labelled, present, strict=True)
        if applies
    }
    chosen = one_per_question([row for row, _ in labelled if row["entry_id"] in of_row], newest)
    labels = [replace(of_row[row["entry_id"]], top=None) for row in chosen]  # they are checked now
    if len(of_row) < len(labelled):
        left_out[MOVED] = len(labelled) - len(of_row)
    notes = tuple(f"left out: {n} labels, because {why}." for why, n in left_out.items())
    if not labels:
        raise InputError(
            " ".join([f"the journal {name} has no label of searches that can be used,", *notes])
            + " Labels of generated answers are for --answers."
        )
    return labels, notes


def journal_queries(model: CalibratedReranker, journal: str, *, newest: int) -> list[Query]:
    """Those of the newest searches of a journal that the model can answer, oldest first."""
    chosen = (
        select(_C.entry_id, _C.asked)
        .where(_C.mode == "search", _C.asked.is_not(None))
        .order_by(_C.entry_id.desc())
        .limit(newest)
    )
    with JournalStore(journal) as store:
        rows, name = store.rows(chosen), store.name
    queries = []
    for row in reversed(rows):
        with suppress(InputError):  # such as a longer query, which a server may be set to take
            query = read_query({**json.loads(row["asked"]), "_id": row["entry_id"]})
            model.check(query)
            queries.append(query)
    if not queries:
        raise InputError(
            f"the journal {name} has no search with its text; expected some to compare"
        )
    return queries


def journal_answers(journal: str, versions: Sequence[str], newest: int | None) -> list[Row]:
    """The newest labelled answer to each question by models of these versions, oldest first.

    Refusals do not count as answers. `newest` keeps only so many.
    """
    labelled = _C.right.is_not(None) & _C.attribution.is_not(None) & (_C.decision != REFUSED)
    chosen = (
        select(_C.question_hash, _C.right, _C.confidence, _C.attribution)
        .where(labelled & _C.model.in_(versions))
        .order_by(_C.judged.desc(), _C.entry_id)
    )
    with JournalStore(journal) as store:
        return _first_of_each(store.rows(chosen), "question_hash")[:newest][::-1]

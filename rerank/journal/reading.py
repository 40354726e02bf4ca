"""What is read from a journal: labels, queries to check for drift, the report, the Watch page.

Labels are people's feedback, in the order in which it was given, on top passages or on generated
answers, never mixed. A question counts with one label only: the first one predicts the next.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Integer, Select, case, cast, exists, func, select

from calibration.drift import Drift, Sketch, alarm
from calibration.reliability import aligned
from calibration.sequential import AccuracyMonitor, CalibrationMonitor
from rerank.assessment.model import CalibratedReranker
from rerank.config import LEVELS, Thresholds
from rerank.data.feedback import MOVED, Feedback, feedback_from, still_first
from rerank.data.records import read_query
from rerank.errors import InputError
from rerank.journal.store import ANSWERED, DAY, JOURNAL, REFUSED, UNSURE, JournalStore, Row
from rerank.types import Mode, Query

MODEL_COLUMNS = (
    *("model", "questions", "accepted", "confidence"),
    *("right/judged", "answers right/judged", "last (UTC)"),
)
DOCUMENT_COLUMNS = ("document", "questions", "confidence", "earlier", "lately")
MIN_ASKED = 2  # questions about a document before it is listed
QUESTION = ("mode", "question_hash")  # the columns by which questions are told apart
_C = JOURNAL.c
JUDGED_PASSAGES = _C.right.is_not(None) & _C.answer_hash.is_(None)  # not of a generated answer
JUDGED_ANSWERS = _C.right.is_not(None) & _C.answer_hash.is_not(None)


def newest_labels(store: JournalStore, *, model: str | None = None) -> list[Row]:
    """The newest label of each first passage of each question (of a version), oldest first."""
    columns = (_C.question_hash, _C.mode, _C.right, _C.asked, _C.top_doc_id)
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
    """A row of `newest_labels` that has its text, in the format of a labels file."""
    top = None if row["top_doc_id"] is None else {"doc_id": row["top_doc_id"]}
    label = {"top": top, "right": bool(row["right"]), "chosen": True}
    return {**json.loads(row["asked"]), **label}


def monitors(
    store: JournalStore, model: str, *, target: float, level: float = 0.05
) -> tuple[AccuracyMonitor, CalibrationMonitor]:
    """Tests whether a model's accepted answers are right as often as `target`, and its calibration.

    Both may be looked at after every label: see `calibration.sequential`. They read the
    first judgement of each question: what raised an alarm must not vanish.
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

    A label is about the passage that was first then: it applies only if that is first now, too.
    `newest` keeps only so many of the labels that apply.
    """
    with JournalStore(journal) as store:
        rows = newest_labels(store)
    left_out: Counter[str] = Counter()
    labelled: list[Row] = []
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
            labelled.append({**row, "label": label})
        except InputError:
            left_out["they are of answers of another kind of model"] += 1
    again = partial(model.assess, label="ranking labelled queries")
    present = still_first([row["label"] for row in labelled], again)
    chosen = one_per_question(list(compress(labelled, present)), newest)
    labels = [replace(row["label"], top=None) for row in chosen]  # they are checked now
    if not all(present):
        left_out[MOVED] = present.count(False)
    notes = tuple(f"left out: {n} labels, because {why}." for why, n in left_out.items())
    if not labels:
        why = f"the journal {store.name} has no label of searches that can be used,"
        hint = "Labels of generated answers are for --answers."
        raise InputError(" ".join([why, *notes, hint]))
    return labels, notes


def journal_queries(model: CalibratedReranker, journal: str, *, newest: int) -> list[Query]:
    """Those of the newest searches of a journal that the model can answer, oldest first."""
    chosen = select(_C.entry_id, _C.asked).where(_C.mode == "search", _C.asked.is_not(None))
    with JournalStore(journal) as store:
        rows = store.rows(chosen.order_by(_C.entry_id.desc()).limit(newest))
    queries = []
    for row in reversed(rows):
        with suppress(InputError):  # such as a longer query, which a server may be set to take
            query = read_query({**json.loads(row["asked"]), "_id": row["entry_id"]})
            model.check(query)
            queries.append(query)
    if not queries:
        raise InputError(
            f"the journal {store.name} has no search with its text; expected some to compare"
        )
    return queries


def journal_answers(journal: str, versions: Sequence[str], newest: int | None) -> list[Row]:
    """The newest labelled answer to each question by models of these versions, oldest first.

    Refusals do not count as answers. `newest` keeps only so many.
    """
    chosen = select(_C.question_hash, _C.right, _C.confidence, _C.attribution).where(
        _C.right.is_not(None),
        _C.attribution.is_not(None),
        _C.decision != REFUSED,
        _C.model.in_(versions),
    )
    with JournalStore(journal) as store:
        rows = store.rows(chosen.order_by(_C.judged.desc(), _C.entry_id))
    return _first_of_each(rows, "question_hash")[:newest][::-1]


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The last `days` of a journal; the monitors are of one model, since its start."""

    journal: str
    days: float
    model: str  # the version that the monitors are of; "" if nothing was asked
    models: list[Row]  # the columns of `_models`, newest first
    accuracy: AccuracyMonitor
    calibration: CalibrationMonitor
    documents: list[Row]  # the columns of `_uncertain_documents`, most questions first

    @property
    def alarmed(self) -> bool:
        """Whether the labels contradict the model."""
        return self.accuracy.alarmed or self.calibration.alarmed

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "journal": self.journal,
            "days": self.days,
            "alarm": self.alarmed,
            "model": self.model,
            "models": self.models,
            "monitors": [
                {**m.to_dict(), "n": m.n, "alarm": m.alarmed, "sentence": m.sentence}
                for m in (self.accuracy, self.calibration)
            ],
            "documents": self.documents,
        }

    def text(self) -> str:
        """The report in words and tables."""
        if not self.models:
            return f"{self.journal}: no question in the last {self.days:g} days"
        count = sum(m["questions"] for m in self.models)
        models = aligned([MODEL_COLUMNS, *map(_model_cells, self.models)])
        tests = "Nobody has judged its first passages yet."
        if self.calibration.n:
            tests = f"{self.accuracy.sentence}\n{self.calibration.sentence}"
        text = (
            f"{self.journal}: {count} questions in the last {self.days:g} days\n\n{models}\n\n"
            f"Model {self.model}:\n{tests}"
        )
        if any(m["answers"] for m in self.models):
            text += "\n\nGenerated answers:"
        for m in (m for m in self.models if m["answers"]):
            text += (
                f"\n{m['model']}: {m['answers']}, of these {m['refused']} refused and "
                f"{m['unsure']} with low confidence"
            )
            if m["attribution"] is not None:
                text += f"; sources support {m['attribution']:.0%} of their sentences"
        if self.documents:
            rows = [
                (d["document"], f"{d['questions']}", *map(_mean, map(d.get, DOCUMENT_COLUMNS[2:])))
                for d in self.documents
            ]
            text += (
                "\n\nCame first for several questions, and never sure enough (mean confidence; "
                "earlier and lately: in the first and in the second half of these days):\n"
                f"{aligned([DOCUMENT_COLUMNS, *rows])}"
            )
        return text


def _model_cells(row: Row) -> tuple[str, ...]:
    return (
        row["model"],
        f"{row['questions']}",
        f"{row['accepted']:.0%}",
        f"{row['confidence']:.2f}",
        f"{row['right']}/{row['judged']}",
        f"{row['answers_right']}/{row['answers_judged']}",
        datetime.fromtimestamp(row["last"], UTC).strftime("%Y-%m-%d %H:%M"),
    )


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def report(
    store: JournalStore,
    *,
    days: float = 30,
    documents: int = 10,
    target: float | None = None,
    model: str | None = None,
) -> JournalReport:
    """The report of the last `days`, with at most `documents` documents.

    The monitors are those of the version `model`, by default of the one that answered last. They
    test whether as many of its accepted answers are right as `target` says, by default the
    threshold of its newest answer, from which it accepts.
    """
    now = time.time()
    since = now - days * DAY
    models = store.rows(_models(since))
    uncertain = store.rows(_uncertain_documents(since, (since + now) / 2, documents))
    if model is None:
        model = models[0]["model"] if models else ""
    if target is None:
        newest = select(_C.threshold).where(_C.model == model)
        rows = store.rows(newest.order_by(_C.entry_id.desc()).limit(1))
        target = float(rows[0]["threshold"]) if rows else Thresholds().advisory
        target = min(max(target, 0.01), 0.99)  # a test needs some room
    accuracy, calibrated = monitors(store, model, target=target)
    return JournalReport(store.name, days, model, models, accuracy, calibrated, uncertain)


def _models(since: float) -> Select[Any]:
    """The versions of the model that answered; `answers` are generated ones."""
    asked = func.count()
    return (
        select(
            _C.model,
            asked.label("questions"),
            (1.0 * _count(_C.accepted) / asked).label("accepted"),
            func.avg(_C.confidence).label("confidence"),
            _count(JUDGED_PASSAGES).label("judged"),
            _count(JUDGED_PASSAGES & _C.right).label("right"),
            _count(JUDGED_ANSWERS).label("answers_judged"),
            _count(JUDGED_ANSWERS & _C.right).label("answers_right"),
            _count(_C.decision.in_((ANSWERED, UNSURE, REFUSED))).label("answers"),
            _count(_C.decision == REFUSED).label("refused"),
            _count(_C.decision == UNSURE).label("unsure"),
            func.avg(_C.attribution).label("attribution"),
            func.max(_C.time).label("last"),
        )
        .where(_C.time >= since)
        .group_by(_C.model)
        .order_by(func.max(_C.time).desc())
    )


def _uncertain_documents(since: float, middle: float, limit: int) -> Select[Any]:
    """Documents that were on top of searches, none of which was accepted."""
    document = func.coalesce(_C.top_document, _C.top_doc_id)
    asked = func.count(_C.question_hash.distinct())
    return (
        select(
            document.label("document"),
            asked.label("questions"),
            func.avg(_C.confidence).label("confidence"),
            func.avg(case((_C.time < middle, _C.confidence))).label("earlier"),
            func.avg(case((_C.time >= middle, _C.confidence))).label("lately"),
        )
        .where(_C.time >= since, _C.mode == "search", _C.top_doc_id.is_not(None))
        .group_by(document)
        .having(_count(_C.accepted) == 0, asked >= MIN_ASKED)
        .order_by(asked.desc(), document)
        .limit(limit)
    )


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


def by_day(store: JournalStore, *, days: float) -> list[dict[str, Any]]:
    """The days (UTC) that have answers, oldest first, of the last `days`.

    Keys: `day`, such as 2026-01-31; the numbers of `questions` and of those `accepted`; the mean
    `confidence`; and `levels`, the number of answers by level.
    """
    number = _C.time / DAY  # from 1970 on
    near = cast(number, Integer)  # PostgreSQL rounds, SQLite cuts off
    chosen = (
        select(
            (near - case((near > number, 1), else_=0)).label("day"),
            func.count().label("questions"),
            _count(_C.accepted).label("accepted"),
            func.avg(_C.confidence).label("confidence"),
            *(_count(_C.level == level).label(level) for level in LEVELS),
        )
        .where(_C.time >= time.time() - days * DAY)
        .group_by("day")
        .order_by("day")
    )
    rows = [dict(row) for row in store.rows(chosen)]
    for row in rows:
        row["day"] = datetime.fromtimestamp(row["day"] * DAY, UTC).strftime("%Y-%m-%d")
        row["levels"] = {level: n for level in LEVELS if (n := row.pop(level))}
    return rows


def waiting(store: JournalStore, *, model: str, limit: int = 50) -> list[Row]:
    """Searches below the advisory threshold of the version `model` with an unjudged first passage.

    Each question once, with its newest answer; the newest first. Keys: `id`, `time`, `question`
    (None if texts are left out), `document`, `doc_id`, `confidence`, `level`, and `times`, the
    number of such answers.
    """
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
    chosen = select(
        _C.answer_id.label("id"),
        _C.time,
        _C.question,
        _C.top_document.label("document"),
        _C.top_doc_id.label("doc_id"),
        _C.confidence,
        _C.level,
        repeated.c.times,
    )
    of_newest = chosen.join(repeated, _C.entry_id == repeated.c.newest)
    return store.rows(of_newest.order_by(_C.entry_id.desc()).limit(limit))


def journal_drift(
    store: JournalStore,
    sketch: Sketch,
    *,
    model: str,
    mode: Mode,
    days: float,
    newest: int,
    level: float,
) -> Drift | None:
    """Compare answers of a model in one mode with the sketch of what it was fitted on.

    These are the `newest` of the last `days`, by the features in the journal. The answers to one
    question count as rephrasings of it. Without any change, the chance of an alarm is at most
    `level` at one look. None if the journal holds the features of no such answer.
    """
    chosen = (
        select(_C.features, _C.question_hash)
        .where(_C.time >= time.time() - days * DAY, _C.model == model, _C.mode == mode)
        .where(func.length(_C.features) == np.dtype(np.float64).itemsize * len(sketch.names))
        .order_by(_C.entry_id.desc())
        .limit(newest)
    )
    rows = store.rows(chosen)
    if not rows:
        return None
    features = np.stack([np.frombuffer(row["features"], "<f8") for row in rows])
    return alarm(sketch, features, level=level, groups=[row["question_hash"] for row in rows])

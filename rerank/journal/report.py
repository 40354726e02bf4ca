"""The journal's report and the data of the Watch page, all read from the journal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Integer, Select, case, cast, exists, func, select

from calibration.monitoring.drift import Drift, Sketch, alarm
from calibration.monitoring.sequential import AccuracyMonitor, CalibrationMonitor
from calibration.tables import aligned
from rerank.config import LEVELS, Thresholds
from rerank.journal.database import JOURNAL
from rerank.journal.reading import JUDGED_PASSAGES, monitors
from rerank.journal.store import ANSWERED, DAY, REFUSED, UNSURE, JournalStore, Row
from rerank.types import Mode

MODEL_COLUMNS = (
    *("model", "questions", "accepted", "confidence"),
    *("right/judged", "answers right/judged", "last (UTC)"),
)
DOCUMENT_COLUMNS = ("document", "questions", "confidence", "earlier", "lately")
MIN_ASKED = 2  # questions about a document before it is listed
_C = JOURNAL.c
JUDGED_ANSWERS = _C.right.is_not(None) & _C.answer_hash.is_not(None)


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
        if answering := [m for m in self.models if m["answers"]]:
            text += "\n".join(["\n\nGenerated answers:", *map(_answers_sentence, answering)])
        if self.documents:
            text += (
                "\n\nCame first for several questions, and never sure enough (mean confidence; "
                "earlier and lately: in the first and in the second half of these days):\n"
                f"{aligned([DOCUMENT_COLUMNS, *map(_document_cells, self.documents)])}"
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


def _answers_sentence(row: Row) -> str:
    supported = row["attribution"]
    return (
        f"{row['model']}: {row['answers']}, of these {row['refused']} refused and {row['unsure']} "
        "with low confidence"
        + ("" if supported is None else f"; sources support {supported:.0%} of their sentences")
    )


def _document_cells(row: Row) -> tuple[str, ...]:
    means = (row["confidence"], row["earlier"], row["lately"])
    shown = ("-" if mean is None else f"{mean:.2f}" for mean in means)
    return (row["document"], f"{row['questions']}", *shown)


def report(
    store: JournalStore,
    *,
    days: float = 30,
    documents: int = 10,
    target: float | None = None,
    model: str | None = None,
) -> JournalReport:
    """The report of the last `days`, with at most `documents` documents.

    The monitors are those of the `model` of this version, or else of the one that answered last.
    They test whether as many of its accepted answers are right as `target` says, by default the
    threshold from which the model accepts.
    """
    now = time.time()
    since = now - days * DAY
    models = store.rows(_models(since))
    uncertain = store.rows(_uncertain_documents(since, (since + now) / 2, documents))
    if model is None:
        model = models[0]["model"] if models else ""
    if target is None:
        target = min(max(_threshold(store, model), 0.01), 0.99)  # a test needs some room
    accuracy, calibrated = monitors(store, model, target=target)
    return JournalReport(store.name, days, model, models, accuracy, calibrated, uncertain)


def _threshold(store: JournalStore, model: str) -> float:
    """That of the model's newest answer; the default one if the journal does not hold it."""
    newest = select(_C.threshold).where(_C.model == model, _C.threshold.is_not(None))
    rows = store.rows(newest.order_by(_C.entry_id.desc()).limit(1))
    return float(rows[0]["threshold"]) if rows else Thresholds().advisory


def _models(since: float) -> Select[Any]:
    """The versions of the model that answered: shares, means, and what people have judged.

    `answers` are generated ones, some `refused`, some `unsure` (of low confidence); `attribution`
    is the mean share of an answer's sentences that sources support, None where none was generated.
    """
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
    """Searches below the advisory threshold whose first passage nobody has judged.

    They are those of the `model` of this version. Each question once, with its newest answer; the
    newest first. Keys: `id`, `time`, `question` (None if texts are left out), `document`, `doc_id`,
    `confidence`, `level`, and `times`, the number of such answers.
    """
    return store.rows(_waiting(model, limit))


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

    These are the `newest` of the last `days`. Nothing is asked again, and no text is needed: the
    journal holds the features. The answers to one question count as rephrasings of it.
    Without any change, the chance of an alarm is at most `level` at one look.

    Returns:
        None if the journal holds the features of no such answer.
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

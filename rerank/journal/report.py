"""The journal's report: confidence of answers, whether labels agree, and weak documents.

It knows nothing of models: all numbers are read from the journal.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select

from calibration.monitoring.sequential import AccuracyMonitor, CalibrationMonitor
from calibration.tables import aligned
from rerank.config import Thresholds
from rerank.journal.labels import OF_THE_TOP, monitors
from rerank.journal.schema import JOURNAL
from rerank.journal.store import DAY, JournalStore

MODEL_COLUMNS = (
    *("model", "questions", "accepted", "confidence"),
    *("right/judged", "answers right/judged", "last (UTC)"),
)
DOCUMENT_COLUMNS = ("document", "questions", "confidence", "earlier", "lately")
MIN_ASKED = 2  # questions about a document before it is listed
_C = JOURNAL.c
_OF_ANSWERS = _C.right.is_not(None) & _C.answer_hash.is_not(None)


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """The answers of one version of the model."""

    model: str
    questions: int
    accepted: float  # share
    confidence: float  # mean
    judged: int  # first passages that people have judged
    right: int  # of those
    answers_judged: int  # generated answers that people have judged
    answers_right: int  # of those
    last: float  # seconds since 1970

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return (
            self.model,
            f"{self.questions}",
            f"{self.accepted:.0%}",
            f"{self.confidence:.2f}",
            f"{self.right}/{self.judged}",
            f"{self.answers_right}/{self.answers_judged}",
            datetime.fromtimestamp(self.last, UTC).strftime("%Y-%m-%d %H:%M"),
        )


@dataclass(frozen=True, slots=True)
class DocumentTrend:
    """A document that came first for several questions, but never with enough confidence."""

    document: str
    questions: int
    confidence: float  # mean
    earlier: float | None  # mean in the first half of the period; None: no questions
    lately: float | None  # mean in the second half

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        means = (self.confidence, self.earlier, self.lately)
        shown = ("-" if mean is None else f"{mean:.2f}" for mean in means)
        return (self.document, f"{self.questions}", *shown)


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The last `days` of a journal; the monitors are of one model, since its start."""

    journal: str
    days: float
    model: str  # the version that the monitors are of; "" if nothing was asked
    models: tuple[ModelSummary, ...]  # newest first
    accuracy: AccuracyMonitor
    calibration: CalibrationMonitor
    documents: tuple[DocumentTrend, ...]  # most questions first

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
            "models": [asdict(model) for model in self.models],
            "monitors": [
                {**m.to_dict(), "n": m.n, "alarm": m.alarmed, "sentence": m.sentence}
                for m in (self.accuracy, self.calibration)
            ],
            "documents": [asdict(document) for document in self.documents],
        }

    def text(self) -> str:
        """The report in words and tables."""
        if not self.models:
            return f"{self.journal}: no question in the last {self.days:g} days"
        count = sum(m.questions for m in self.models)
        parts = [
            f"{self.journal}: {count} questions in the last {self.days:g} days",
            aligned([MODEL_COLUMNS, *(m.cells() for m in self.models)]),
            f"Model {self.model}:\n{self._tests()}",
        ]
        if self.documents:
            table = aligned([DOCUMENT_COLUMNS, *(d.cells() for d in self.documents)])
            parts.append(
                "Came first for several questions, and never sure enough (mean confidence; earlier "
                f"and lately: in the first and in the second half of these days):\n{table}"
            )
        return "\n\n".join(parts)

    def _tests(self) -> str:
        """What the labels of the model say."""
        if not self.calibration.n:
            return "Nobody has judged its first passages yet."
        return f"{self.accuracy.sentence}\n{self.calibration.sentence}"


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

    Raises:
        JournalError: the database cannot be used.
    """
    now = time.time()
    since = now - days * DAY
    models = tuple(ModelSummary(**row) for row in store.rows(_models(since)))
    trends = store.rows(_uncertain_documents(since, (since + now) / 2, documents))
    if model is None:
        model = models[0].model if models else ""
    if target is None:
        target = min(max(_threshold(store, model), 0.01), 0.99)  # a test needs some room
    accuracy, calibrated = monitors(store, model, target=target)
    found = tuple(DocumentTrend(**row) for row in trends)
    return JournalReport(store.name, days, model, models, accuracy, calibrated, found)


def _threshold(store: JournalStore, model: str) -> float:
    """That of the model's newest answer; the default one if the journal does not hold it."""
    newest = select(_C.threshold).where(_C.model == model, _C.threshold.is_not(None))
    rows = store.rows(newest.order_by(_C.entry_id.desc()).limit(1))
    return float(rows[0]["threshold"]) if rows else Thresholds().advisory


def _models(since: float) -> Select[Any]:
    asked = func.count()
    return (
        select(
            _C.model,
            asked.label("questions"),
            (1.0 * _count(_C.accepted) / asked).label("accepted"),
            func.avg(_C.confidence).label("confidence"),
            _count(OF_THE_TOP).label("judged"),
            _count(OF_THE_TOP & _C.right).label("right"),
            _count(_OF_ANSWERS).label("answers_judged"),
            _count(_OF_ANSWERS & _C.right).label("answers_right"),
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
    """How many rows meet a condition."""
    return func.sum(case((condition, 1), else_=0))

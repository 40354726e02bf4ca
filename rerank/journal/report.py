"""What the journal tells: how sure answers are, whether labels agree, which documents fall short.

It knows nothing of models: all numbers are those that were written.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, case, func, select

from calibration.monitoring.sequential import AccuracyMonitor, CalibrationMonitor
from calibration.tables import aligned
from rerank.journal.labels import monitors
from rerank.journal.schema import JOURNAL
from rerank.journal.store import DAY, JournalStore

LEAST_ASKED = 2  # questions about a document before it is listed
_C = JOURNAL.c
_ACCEPTED = func.sum(case((_C.accepted, 1), else_=0))
_JUDGED = func.count(_C.right)
_RIGHT = func.sum(case((_C.right, 1), else_=0))


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What one version of the model has answered."""

    model: str
    questions: int
    accepted: float  # share
    confidence: float  # mean
    judged: int  # answers that people have judged
    right: int  # of those
    last: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class DocumentTrend:
    """A document that came first for several questions, and was never sure enough."""

    document: str
    questions: int
    confidence: float  # mean
    earlier: float | None  # mean in the first half of the time looked at; None: not asked for
    lately: float | None  # mean in the second half


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The last `days` of a journal; the monitors are of the newest model, since its start."""

    journal: str
    days: float
    models: tuple[ModelSummary, ...]  # newest first
    accuracy: AccuracyMonitor
    calibration: CalibrationMonitor
    documents: tuple[DocumentTrend, ...]  # most asked for first

    @property
    def alarmed(self) -> bool:
        """Whether the labels contradict the newest model."""
        return self.accuracy.alarmed or self.calibration.alarmed

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "journal": self.journal,
            "days": self.days,
            "alarm": self.alarmed,
            "models": [asdict(model) for model in self.models],
            "monitors": [
                {**m.to_dict(), "alarm": m.alarmed, "sentence": m.sentence}
                for m in (self.accuracy, self.calibration)
            ],
            "documents": [asdict(document) for document in self.documents],
        }

    def text(self) -> str:
        """The report in words and tables."""
        if not self.models:
            return f"{self.journal}: no question in the last {self.days:g} days"
        count = sum(m.questions for m in self.models)
        models = [("model", "questions", "accepted", "confidence", "judged", "right", "last (UTC)")]
        models += [
            (
                m.model,
                f"{m.questions}",
                f"{m.accepted:.0%}",
                f"{m.confidence:.2f}",
                f"{m.judged}",
                f"{m.right}",
                datetime.fromtimestamp(m.last, UTC).strftime("%Y-%m-%d %H:%M"),
            )
            for m in self.models
        ]
        parts = [
            f"{self.journal}: {count} questions in the last {self.days:g} days",
            aligned(models),
            f"Model {self.models[0].model}:\n{self.accuracy.sentence}\n{self.calibration.sentence}",
        ]
        if self.documents:
            rows = [("document", "questions", "confidence", "earlier", "lately")]
            rows += [
                (
                    d.document,
                    f"{d.questions}",
                    _mean(d.confidence),
                    _mean(d.earlier),
                    _mean(d.lately),
                )
                for d in self.documents
            ]
            parts.append(
                f"Came first for several questions, and never sure enough:\n{aligned(rows)}"
            )
        return "\n\n".join(parts)


def report(
    store: JournalStore, *, days: float = 30, documents: int = 10, target: float = 0.7
) -> JournalReport:
    """The report of the last `days`, with at most so many documents.

    Raises:
        JournalError: the database cannot be used.
    """
    now = time.time()
    since = now - days * DAY
    models = tuple(ModelSummary(**row) for row in store.rows(_models(since)))
    trends = store.rows(_never_sure(since, (since + now) / 2, documents))
    accuracy, calibrated = monitors(store, models[0].model if models else "", target=target)
    found = tuple(DocumentTrend(**row) for row in trends)
    return JournalReport(store.name, days, models, accuracy, calibrated, found)


def _models(since: float) -> Select[Any]:
    asked = func.count()
    return (
        select(
            _C.model,
            asked.label("questions"),
            (1.0 * _ACCEPTED / asked).label("accepted"),
            func.avg(_C.confidence).label("confidence"),
            _JUDGED.label("judged"),
            _RIGHT.label("right"),
            func.max(_C.time).label("last"),
        )
        .where(_C.time >= since)
        .group_by(_C.model)
        .order_by(func.max(_C.time).desc())
    )


def _never_sure(since: float, middle: float, most: int) -> Select[Any]:
    """Searches whose top passage is of one document, none of them accepted."""
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
        .having(_ACCEPTED == 0, asked >= LEAST_ASKED)
        .order_by(asked.desc(), document)
        .limit(most)
    )


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

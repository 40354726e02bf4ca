"""The journal that a server keeps: opened from its settings, and what its pages read of it.

It knows nothing of requests.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rerank.assessment.ranking_features import meaning
from rerank.errors import InputError, optional
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics

if TYPE_CHECKING:
    from rerank.journal.journal import Journal
    from rerank.serving.model_source import ServedModel

MOVES = 10  # features of the drift alarm that are shown


class ServerJournal:
    """The journal, with its metrics and what the pages read of it."""

    def __init__(self, journal: Journal, metrics: Metrics, settings: Settings) -> None:
        from rerank.journal.journal import OUTCOMES

        self.journal = journal
        self._settings = settings
        for outcome in OUTCOMES:
            metrics.journal.labels(outcome)
        metrics.journal_waiting.set_function(lambda: journal.waiting)

    def watch_report(self, days: float, served: ServedModel) -> dict[str, Any]:
        """The data of the Watch page for the last `days`; `served` is the current model.

        Raises:
            JournalError: the database cannot be used.
        """
        from rerank.journal.report import by_day, report, waiting

        self.journal.flush()
        store = self.journal.store
        page = report(store, days=days, model=served.version).to_dict()
        del page["journal"]  # do not reveal the database's address
        return {
            **page,
            "calibrated": served.model.calibrated,
            "by_day": [asdict(day) for day in by_day(store, days=days)],
            "drift": self._drift(days, served),
            "waiting": waiting(store, model=served.version),
        }

    def _drift(self, days: float, served: ServedModel) -> dict[str, Any] | None:
        """The newest answers of the current model beside those fitted on; None without either."""
        from rerank.journal.report import journal_drift

        if served.sketch is None:
            return None
        maps = served.model.maps
        found = journal_drift(
            self.journal.store,
            served.sketch,
            model=served.version,
            mode=maps.main_mode,
            days=days,
            newest=self._settings.drift_window,
            level=self._settings.drift_level,
        )
        if found is None:
            return None
        table = maps.main.features.ranking
        moves = [{**asdict(move), "meaning": meaning(move.name, table)} for move in found.moves]
        return {**found.to_dict(), "moves": moves[:MOVES]}

    def labels(self, model: str) -> tuple[list[dict[str, Any]], int]:
        """The labels of first passages, for `model`, in the format of `recalibrate --labels`.

        Also how many are left out: the journal has no text of their questions, or `recalibrate`
        would refuse them.

        Raises:
            JournalError: the database cannot be used.
        """
        from rerank.data.feedback import feedback_from
        from rerank.journal.labels import label_of, newest_labels, one_per_question

        rows = one_per_question(newest_labels(self.journal.store, model=model))
        found: list[dict[str, Any]] = []
        for label in (label_of(row) for row in rows if row["asked"]):
            with suppress(InputError):
                feedback_from(label)
                found.append(label)
        return found, len(rows) - len(found)


def check_journal(settings: Settings) -> None:
    """Refuse a journal that cannot be written; create it if there is none.

    Raises:
        InputError: the URL is not that of a journal, or its schema is of a newer version.
        JournalError: the database cannot be used.
        MissingExtraError: the extra is not installed.
    """
    if settings.journal:
        with optional():
            from rerank.journal.store import JournalStore

            JournalStore(settings.journal, create=True).close()


def open_journal(settings: Settings, metrics: Metrics) -> ServerJournal | None:
    """The journal of the settings; None if they name none.

    Raises:
        RerankError: as `check_journal`.
    """
    if not settings.journal:
        return None
    with optional():
        from rerank.journal.journal import Journal

        journal = Journal(
            settings.journal,
            days=settings.journal_days,
            rows=settings.journal_rows,
            without_text=settings.journal_without_text,
            count=metrics.count_journal,
        )
    return ServerJournal(journal, metrics, settings)

"""The server's journal: every assessed question is offered to it, and feedback comes over HTTP.

A journal that fails costs no answer. It knows nothing of how an answer is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerank.data.text import to_json
from rerank.errors import JournalError, optional
from rerank.serving.schemas import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics, event

if TYPE_CHECKING:
    from rerank.journal.journal import Journal

LINES = "application/x-ndjson"
RETRY = 5  # seconds after which feedback may be sent again
NO_JOURNAL = "this server keeps no journal; it does when it is started with --journal URL"


class ServerJournal:
    """The journal, and what the server's metrics tell of it."""

    def __init__(self, journal: Journal, metrics: Metrics) -> None:
        from rerank.journal.writer import OUTCOMES

        self._journal = journal
        self._metrics = metrics
        for outcome in OUTCOMES:
            metrics.journal.labels(outcome)
        metrics.journal_waiting.set_function(lambda: journal.waiting)

    def record(self, state: dict[str, Any], seconds: float) -> None:
        """Offer what a request has left in its state; never waits, never fails."""
        try:
            self._journal.record(
                state["found"],
                model=state["served"].version,
                latency=seconds,
                answer=state.get("made"),
                answer_id=state["request_id"],
            )
        except Exception as error:
            self._metrics.count_journal("rejected", 1)
            event("journal entry rejected", severity=logging.ERROR, exc_info=error)

    def judge(self, answer_id: str, right: bool, comment: str) -> bool:
        """Record feedback; False where the journal has no such answer.

        Raises:
            InputError: the comment is no text.
            JournalError: the database cannot be used.
        """
        return self._journal.judge(answer_id, right, comment)

    def watched(self, days: float) -> dict[str, Any]:
        """What the Watch page shows of the last `days`.

        Raises:
            JournalError: the database cannot be used.
        """
        from rerank.journal.report import report
        from rerank.journal.watch import by_day, waiting

        self._journal.flush()
        store = self._journal.store
        page = report(store, days=days).to_dict()
        del page["journal"]  # where it lies is nobody's business here
        return {
            **page,
            "by_day": [asdict(day) for day in by_day(store, days=days)],
            "waiting": waiting(store),
        }

    def labels(self, model: str) -> list[dict[str, Any]]:
        """What people said of first passages, of `model`, as `recalibrate --labels` reads it.

        Raises:
            JournalError: the database cannot be used.
        """
        from rerank.journal.labels import label_of, newest_labels

        rows = newest_labels(self._journal.store)
        return [label_of(row) for row in rows if row["model"] == model and row["asked"]]

    def close(self) -> None:
        """Write what waits, and end."""
        self._journal.close()


def check_journal(settings: Settings) -> None:
    """Refuse a journal that cannot be written; make it where there is none.

    Raises:
        InputError: no URL of a journal, or a schema of a newer version.
        JournalError: the database cannot be used.
        MissingExtraError: the extra is not installed.
    """
    if settings.journal:
        with optional():
            from rerank.journal.store import JournalStore

            JournalStore(settings.journal, create=True).close()


def open_journal(settings: Settings, metrics: Metrics) -> ServerJournal | None:
    """The journal of the settings; None where they name none.

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
    return ServerJournal(journal, metrics)


class JournalRecorder:
    """A layer that offers an assessed question to the journal before its answer leaves."""

    def __init__(self, app: ASGIApp, *, journal: ServerJournal) -> None:
        self._app = app
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        start, state = time.perf_counter(), scope.get("state", {})

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and "found" in state:
                self._journal.record(state, time.perf_counter() - start)
            await send(message)

        await self._app(scope, receive, answer)


class FeedbackRequest(BaseModel):
    """Whether an answer was right."""

    model_config: ClassVar[Any] = {
        "extra": "forbid",
        "json_schema_extra": {"examples": [{"id": "id of the answer", "right": True}]},
    }
    id: str = Field(min_length=1, max_length=64, description="of the answer, as in its field `id`")
    right: bool = Field(
        strict=True, description="whether the first passage, or the answer, was right"
    )
    comment: str = Field("", description="why, in words; it is kept unless texts are left out")


def journal_routes(journal: ServerJournal | None, version: Callable[[], str]) -> APIRouter:
    """The routes of the journal; without one they say that there is none.

    `version` gives that of the model that answers now.
    """
    router = APIRouter(tags=["feedback"])

    @router.post("/v1/feedback", include_in_schema=journal is not None)
    async def feedback(given: FeedbackRequest) -> dict[str, Any]:
        """Record whether an answer was right. The newest word wins; the same again is no change."""
        kept = _required(journal)
        with _refused_if_it_fails("the journal cannot be written now; nothing is recorded"):
            known = await asyncio.to_thread(kept.judge, given.id, given.right, given.comment)
        if not known:
            raise Refusal(
                404,
                f"the journal has no answer {given.id!a}: it was never given, or is past retention",
                reason="journal",
            )
        return {"id": given.id, "right": given.right}

    @router.get("/v1/journal", include_in_schema=journal is not None)
    async def watched(days: float = Query(30, gt=0, le=366)) -> dict[str, Any]:
        """Tell how sure answers were, whether labels agree, and which answers wait for a word."""
        kept = _required(journal)
        with _refused_if_it_fails("the journal cannot be read now"):
            return await asyncio.to_thread(kept.watched, days)

    @router.get("/v1/journal/labels", include_in_schema=journal is not None)
    async def labels() -> Response:
        """Give what people said of the present model, as `rerank recalibrate --labels` reads it."""
        kept = _required(journal)
        with _refused_if_it_fails("the journal cannot be read now"):
            found = await asyncio.to_thread(kept.labels, version())
        return Response("".join(f"{to_json(row)}\n" for row in found), media_type=LINES)

    return router


def _required(journal: ServerJournal | None) -> ServerJournal:
    if journal is None:
        raise Refusal(404, NO_JOURNAL, reason="journal")
    return journal


@contextmanager
def _refused_if_it_fails(what: str) -> Iterator[None]:
    """A database that fails is a refusal, and a line in the log."""
    try:
        yield
    except JournalError as error:
        event("journal failed", severity=logging.ERROR, why=str(error))
        raise Refusal(
            503,
            f"{what}; try again in {RETRY} seconds",
            reason="journal",
            headers={"Retry-After": str(RETRY)},
        ) from None

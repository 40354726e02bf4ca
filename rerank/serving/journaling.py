"""The server's journal: every assessed question is offered to it, and feedback comes over HTTP.

A journal that fails costs no answer. It knows nothing of how an answer is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerank.errors import JournalError
from rerank.serving.schemas import Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics, event

if TYPE_CHECKING:
    from rerank.journal.store import JournalStore

FLUSH = 2.0  # seconds that feedback waits for the answer that it is about
RETRY = 5  # seconds after which feedback may be sent again
NO_JOURNAL = "this server keeps no journal; it does when it is started with --journal URL"


class ServerJournal:
    """The store, its writer, and what of the settings is about them."""

    def __init__(self, store: JournalStore, settings: Settings, metrics: Metrics) -> None:
        from rerank.journal.writer import OUTCOMES, JournalWriter

        self._store = store
        self._metrics = metrics
        self._without_text = settings.journal_without_text
        self._writer = JournalWriter(
            store,
            days=settings.journal_days,
            rows=settings.journal_rows,
            count=metrics.count_journal,
        )
        for outcome in OUTCOMES:
            metrics.journal.labels(outcome)
        metrics.journal_waiting.set_function(lambda: self._writer.waiting)

    def record(self, state: dict[str, Any], seconds: float) -> None:
        """Offer what a request has left in its state; never waits, never fails."""
        from rerank.journal.entry import entry_of

        try:
            entry = entry_of(
                state["found"],
                answer_id=state["request_id"],
                model=state["served"].version,
                latency=seconds,
                answer=state.get("made"),
                without_text=self._without_text,
            )
            self._writer.offer(entry)
        except Exception as error:
            self._metrics.count_journal("rejected", 1)
            event("journal entry rejected", severity=logging.ERROR, exc_info=error)

    def judge(self, answer_id: str, right: bool, comment: str) -> bool:
        """Record feedback; False where the journal has no such answer.

        Raises:
            InputError: the comment is no text.
            JournalError: the database cannot be used.
        """
        self._writer.flush(FLUSH)
        return self._store.judge(answer_id, right, comment)

    def close(self) -> None:
        """Write what waits, and end."""
        self._writer.close()
        self._store.close()


def check_journal(settings: Settings) -> None:
    """Refuse a journal that cannot be written; make it where there is none.

    Raises:
        InputError: no URL of a journal, or a schema of a newer version.
        JournalError: the database cannot be used.
        MissingExtraError: the extra is not installed.
    """
    if settings.journal:
        _open(settings).close()


def open_journal(settings: Settings, metrics: Metrics) -> ServerJournal | None:
    """The journal of the settings; None where they name none.

    Raises:
        RerankError: as `check_journal`.
    """
    if not settings.journal:
        return None
    return ServerJournal(_open(settings), settings, metrics)


def _open(settings: Settings) -> JournalStore:
    from rerank.errors import optional

    with optional():
        from rerank.journal.store import JournalStore

        return JournalStore(settings.journal, create=True)


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


def journal_routes(journal: ServerJournal | None) -> APIRouter:
    """The route of feedback; without a journal it says that there is none."""
    router = APIRouter(tags=["feedback"])

    @router.post("/v1/feedback", include_in_schema=journal is not None)
    async def feedback(given: FeedbackRequest) -> dict[str, Any]:
        """Record whether an answer was right. The newest word wins; the same again is no change."""
        if journal is None:
            raise Refusal(404, NO_JOURNAL, reason="journal")
        try:
            known = await asyncio.to_thread(journal.judge, given.id, given.right, given.comment)
        except JournalError as error:
            event("feedback failed", severity=logging.ERROR, why=str(error))
            raise Refusal(
                503,
                f"the journal cannot be written now; nothing is recorded, try again in {RETRY} "
                "seconds",
                reason="journal",
                headers={"Retry-After": str(RETRY)},
            ) from None
        if not known:
            raise Refusal(
                404,
                f"the journal has no answer {given.id!a}: it was never given, or is past retention",
                reason="journal",
            )
        return {"id": given.id, "right": given.right}

    return router

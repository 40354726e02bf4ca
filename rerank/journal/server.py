"""The journal of a server: every assessed question is recorded, feedback taken, a page shown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerank.assessment.ranking_features import meaning
from rerank.data.checks import to_json
from rerank.errors import InputError, JournalError, optional
from rerank.serving.parts import Host, Part
from rerank.serving.refusals import Refusal
from rerank.serving.requests import KnownFields, StrictRoute
from rerank.serving.settings import Settings
from rerank.serving.telemetry import event

if TYPE_CHECKING:
    from rerank.journal.journal import Journal
    from rerank.serving.model_source import ServedModel
    from rerank.serving.parts import AssessedRequest

PAGES = {"/watch": "rerank.journal/watch.html", "/static/watch.js": "rerank.journal/watch.js"}
LINES = "application/x-ndjson"
RETRY = 5  # seconds after which a request may be sent again
MOVES = 10  # features of the drift alarm that are shown
THREADS = 4  # that wait for the database
WAITING = 32  # requests that may wait for the database at once
LEFT_OUT = "X-Labels-Left-Out"  # the header with the number of labels left out

Result = TypeVar("Result")


@dataclass(eq=False)
class JournalRecorder:
    """Middleware that queues an assessed question for the journal before its answer is sent."""

    app: ASGIApp
    journal: Journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        start = time.perf_counter()

        async def answer(message: Message) -> None:
            done: AssessedRequest | None = scope.get("state", {}).get("assessed")
            if message["type"] == "http.response.start" and done is not None:
                self.journal.record(
                    done.assessment,
                    model=done.served.version,
                    latency=time.perf_counter() - start,
                    answer=done.answer,
                    answer_id=done.request_id,
                )
            await send(message)

        await self.app(scope, receive, answer)


def watch_data(
    journal: Journal, settings: Settings, days: float, served: ServedModel
) -> dict[str, Any]:
    """The data of the Watch page for the last `days`; `served` is the current model."""
    from rerank.journal.reading import by_day, journal_drift, report, waiting

    journal.flush()
    store = journal.store
    page = report(store, days=days, model=served.version).to_dict()
    del page["journal"]  # do not reveal the database's address
    drift, found = None, None
    if served.sketch is not None:
        found = journal_drift(
            store,
            served.sketch,
            model=served.version,
            mode=served.model.maps.main_mode,
            days=days,
            newest=settings.drift_window,
            level=settings.drift_level,
        )
    if found is not None:
        table = served.model.maps.main.features.ranking
        moves = [{**asdict(m), "meaning": meaning(m.name, table)} for m in found.moves[:MOVES]]
        drift = {**found.to_dict(), "moves": moves}
    return {
        **page,
        "calibrated": served.model.calibrated,
        "by_day": by_day(store, days=days),
        "drift": drift,
        "waiting": waiting(store, model=served.version),
    }


def labels_of(journal: Journal, model: str) -> tuple[list[dict[str, Any]], int]:
    """The labels of the version `model` for `recalibrate --labels`, and how many are left out."""
    from rerank.data.feedback import feedback_from
    from rerank.journal.reading import label_of, newest_labels, one_per_question

    rows = one_per_question(newest_labels(journal.store, model=model))
    found: list[dict[str, Any]] = []
    for label in (label_of(row) for row in rows if row["asked"]):
        with suppress(InputError):
            feedback_from(label)
            found.append(label)
    return found, len(rows) - len(found)


def part(host: Host) -> Part:
    """The routes of the journal, and the page that reads it; with a journal, what writes it."""
    settings, metrics = host.settings, host.holder.metrics
    if not settings.journal:
        access = JournalAccess(None, settings.timeout)
        return Part([_routes(access, host)], PAGES, stop=access.close)
    with optional():
        from rerank.journal.journal import OUTCOMES, Journal

        journal = Journal(
            settings.journal,
            days=settings.journal_days,
            rows=settings.journal_rows,
            without_text=settings.journal_without_text,
            count=metrics.count_journal,
        )
    for outcome in OUTCOMES:
        metrics.journal.labels(outcome)
    metrics.journal_waiting.set_function(lambda: journal.waiting)
    access = JournalAccess(journal, settings.timeout)
    layers, routes = [(JournalRecorder, {"journal": journal})], [_routes(access, host)]
    return Part(routes, PAGES, middleware=layers, stop=access.close, finish=journal.close)


def check_journal(settings: Settings) -> None:
    """Refuse a journal that cannot be written; create it if there is none."""
    if settings.journal:
        with optional():
            from rerank.journal.store import JournalStore

            JournalStore(settings.journal, create=True).close()


class FeedbackRequest(KnownFields):
    """Whether an answer was right."""

    model_config: ClassVar[Any] = {
        "extra": "forbid",
        "json_schema_extra": {"examples": [{"id": "id of the answer", "right": True}]},
    }
    id: str = Field(
        min_length=1,
        max_length=64,
        pattern=r"^[^\x00]*$",
        description="of the answer, as in its field `id`",
    )
    right: bool = Field(
        strict=True, description="whether the first passage, or the answer, was right"
    )
    comment: str = Field("", description="why, in words; it is kept unless texts are left out")


class JournalAccess:
    """Access of requests to the journal's database: few at a time, and for `seconds` at most.

    So a slow or locked database cannot use up the threads and the queue of the other requests.
    """

    def __init__(self, journal: Journal | None, seconds: float) -> None:
        self.journal = journal
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="journal")
        self._waiting = 0

    async def __call__(
        self, what: str, call: Callable[[Journal], Result], *, hint: str = ""
    ) -> Result:
        """What `call` returns; `what` is told if that fails, `hint` if it takes too long."""
        if self.journal is None:
            why = "this server keeps no journal; it does when it is started with --journal URL"
            raise Refusal(404, why, "journal")
        if self._waiting >= WAITING:
            raise _unavailable(f"{WAITING} requests already wait for the journal")
        self._waiting += 1
        going = asyncio.get_running_loop().run_in_executor(self._threads, call, self.journal)

        def done(going: asyncio.Future[Any]) -> None:
            self._waiting -= 1
            if not going.cancelled():
                going.exception()  # a failure after the time-out is told to nobody

        going.add_done_callback(done)
        try:
            return await asyncio.wait_for(asyncio.shield(going), self._seconds)
        except TimeoutError:
            late = f"the journal did not answer within {self._seconds:g} seconds"
            raise _unavailable(late, hint) from None
        except JournalError as error:
            event("journal failed", severity=logging.ERROR, why=str(error))
            raise _unavailable(what) from None

    def close(self) -> None:
        """Accept no more calls; cancel waiting ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _unavailable(why: str, hint: str = "") -> Refusal:
    return Refusal(
        503,
        f"{why}; try again in {RETRY} seconds{hint and f'; {hint}'}",
        reason="journal",
        headers={"Retry-After": str(RETRY)},
    )


def _routes(access: JournalAccess, host: Host) -> APIRouter:
    """The routes; without a journal they answer 404, and are not in the schema."""
    router = APIRouter(
        tags=["feedback"], include_in_schema=access.journal is not None, route_class=StrictRoute
    )

    @router.post("/v1/feedback")
    async def feedback(given: FeedbackRequest) -> dict[str, Any]:
        """Record whether an answer was right. The newest wins; a repetition changes nothing."""
        known = await access(
            "the journal cannot be written now",
            lambda journal: journal.judge(given.id, given.right, given.comment),
            hint="sending the same feedback again is safe",
        )
        if not known:
            raise Refusal(
                404,
                f"the journal has no answer {given.id!a}: it was never given, or is past retention",
                reason="journal",
            )
        return {"id": given.id, "right": given.right}

    @router.get("/v1/journal")
    async def watch_report(days: float = Query(30, gt=0, le=366)) -> dict[str, Any]:
        """Report how confident answers were, what has changed, and what lacks feedback."""
        return await access(
            "the journal cannot be read now",
            lambda journal: watch_data(journal, host.settings, days, host.holder.current),
        )

    @router.get("/v1/journal/labels")
    async def labels() -> Response:
        """Return the current model's labels in the format of `rerank recalibrate --labels`.

        The header says how many are left out: the journal has no text of their questions, or
        `recalibrate` would refuse them.
        """
        found, left_out = await access(
            "the journal cannot be read now",
            lambda journal: labels_of(journal, host.holder.current.version),
        )
        if not found:
            why = "nobody has judged a first passage of the served model yet"
            if left_out:
                why = (
                    f"the journal has no text of the questions of {left_out} judged answers, or "
                    "`recalibrate` would refuse it; see --journal-without-text, --journal-days"
                )
            raise Refusal(404, f"there is no label to save: {why}", "journal")
        lines = "".join(f"{to_json(row)}\n" for row in found).encode(errors="replace")
        return Response(lines, media_type=LINES, headers={LEFT_OUT: str(left_out)})

    return router

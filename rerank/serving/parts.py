"""What a room of the table brings to a server, and what it gets for that: assessments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request

from rerank.protocols import GivenAnswer
from rerank.rooms import load, rooms
from rerank.serving.middleware import while_connected
from rerank.serving.model_source import ModelHolder, ServedModel
from rerank.serving.requests import QueryRequest
from rerank.serving.settings import Settings
from rerank.serving.worker import Worker
from rerank.types import Assessment


@dataclass(slots=True)
class AssessedRequest:
    """The assessment of a request, and the model that made it."""

    assessment: Assessment
    served: ServedModel
    request_id: str
    deadline: float  # when the request must be answered, by the clock of the event loop
    began: int  # when its assessment did, and when it ended: nanoseconds of Unix time
    ended: int
    answer: GivenAnswer | None = None  # if this is what was asked for, and is judged

    @property
    def names(self) -> dict[str, Any]:
        """The request's id and the model's version, which every response has."""
        return {"id": self.request_id, "model": self.served.version}


class RequestAssessor:
    """Assesses the query of a request, for every route, its log and the journal."""

    def __init__(self, worker: Worker, settings: Settings) -> None:
        self._worker, self._settings = worker, settings

    async def __call__(
        self, request: Request, body: QueryRequest, reranker: str | None = None
    ) -> AssessedRequest:
        """`reranker` is the fingerprint of the cross-encoder that gave the request's logits.

        Raises as `Worker.assess`, and a Refusal if the client disconnects.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        if body.sent_unasked and not self._worker.reads_instructions:
            body.instruction = None
        query, log = body.to_query(self._settings), request.state.log
        log.update(mode=query.mode, documents=len(query.passages or ()))
        if self._settings.log_text:
            log["text"] = query.text
        began, work = time.time_ns(), self._worker.assess(query, reranker)
        found, served = await while_connected(request.receive, work)
        log.update(confidence=found.confidence, level=found.level, model=served.version)
        log.update({} if found.calibrated else {"calibrated": False})
        log.update({"first_stage": True} if found.first_stage else {})
        log.update({"answered_by": found.answered_by} if found.answered_by else {})
        ended = time.time_ns()
        done = AssessedRequest(
            found, served, request.state.request_id, deadline=deadline, began=began, ended=ended
        )
        request.state.assessed = done
        return done


@dataclass(frozen=True, slots=True)
class Host:
    """The server, as a room sees it."""

    holder: ModelHolder
    settings: Settings
    assessor: RequestAssessor
    given: Any = None  # by the command that started the server, for this room


@dataclass(frozen=True, slots=True)
class Part:
    """Routes, pages and middleware, and what is done at the end."""

    routers: Sequence[APIRouter] = ()
    pages: Mapping[str, str] = field(default_factory=dict)  # address -> PACKAGE/FILE in `static`
    linked: bool = True  # whether other pages link to its pages
    middleware: Sequence[tuple[Any, dict[str, Any]]] = ()  # class and arguments, innermost first
    stop: Callable[[], object] = lambda: None  # begin nothing new; before the last answers
    finish: Callable[[], object] = lambda: None  # after them, in a thread


def parts_of(
    holder: ModelHolder, settings: Settings, assessor: RequestAssessor, given: Mapping[str, Any]
) -> list[Part]:
    """The part of every room that has one; `given` is by the name of the room."""
    return [
        load(room.server)(Host(holder, settings, assessor, given.get(name)))
        for name, room in rooms().items()
        if room.server
    ]

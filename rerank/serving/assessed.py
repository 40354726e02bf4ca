"""How every route gets the assessment of its request. It knows nothing of routes and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from fastapi import Request

from rerank.rag.answer.bounded import BoundedAnswer
from rerank.serving.middleware import while_connected
from rerank.serving.model_source import ServedModel
from rerank.serving.requests import QueryRequest
from rerank.serving.settings import Settings
from rerank.serving.worker import Worker
from rerank.types import Assessment


@dataclass(slots=True)
class AssessedRequest:
    """The assessment of a request, and the model that made it."""

    found: Assessment
    served: ServedModel
    request_id: str
    deadline: float  # when the request must be answered, by the clock of the event loop
    answer: BoundedAnswer | None = None  # if this is what was asked for, and is judged

    @property
    def names(self) -> dict[str, str]:
        """The model's version and the request's id, which every response has."""
        return {"model": self.served.version, "request_id": self.request_id}


class Assessed(Protocol):
    """Assess the query of a request."""

    def __call__(
        self, request: Request, body: QueryRequest, reranker: str | None = None
    ) -> Awaitable[AssessedRequest]:
        """`reranker` is the fingerprint of the cross-encoder that gave the request's logits."""


def assessed_by(worker: Worker, settings: Settings) -> Assessed:
    """The function with which every route gets its assessment; it adds to the request's log.

    The result is also in `request.state.assessed`, for the journal.
    """

    async def assessed(
        request: Request, body: QueryRequest, reranker: str | None = None
    ) -> AssessedRequest:
        deadline = asyncio.get_running_loop().time() + settings.timeout
        query = body.to_query(settings)
        log = request.state.log
        log.update(mode=query.mode, documents=len(query.passages or ()))
        if settings.log_text:
            log["text"] = query.text
        found, served = await while_connected(request.receive, worker.assess(query, reranker))
        log.update(confidence=found.confidence, level=found.level, model=served.version)
        done = AssessedRequest(found, served, request.state.request_id, deadline)
        request.state.assessed = done
        return done

    return assessed

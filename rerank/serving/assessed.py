"""How every route gets the assessment of its request. It knows nothing of routes and answers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from fastapi import Request

from rerank.serving.middleware import while_connected
from rerank.serving.requests import QueryRequest
from rerank.serving.settings import Settings
from rerank.serving.worker import Worker
from rerank.types import Assessment


class Assessed(Protocol):
    """Assess the query of a request: the assessment, the model's version and the request's id."""

    def __call__(
        self, request: Request, body: QueryRequest, reranker: str | None = None
    ) -> Awaitable[tuple[Assessment, dict[str, str]]]:
        """`reranker` is the fingerprint of the cross-encoder that gave the request's logits."""


def assessed_by(worker: Worker, settings: Settings) -> Assessed:
    """The function with which every route gets its assessment; it adds to the request's log."""

    async def assessed(
        request: Request, body: QueryRequest, reranker: str | None = None
    ) -> tuple[Assessment, dict[str, str]]:
        query = body.to_query(settings)
        log = request.state.log
        log.update(mode=query.mode, documents=len(query.passages or ()))
        if settings.log_text:
            log["text"] = query.text
        found, served = await while_connected(request.receive, worker.assess(query, reranker))
        request.state.served, request.state.found = served, found
        log.update(confidence=found.confidence, level=found.level, model=served.version)
        return found, {"model": served.version, "request_id": request.state.request_id}

    return assessed

"""The HTTP API: routes, and what is told in what shape. What computes is handed in."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from rerank.data.text import can_be_written
from rerank.serving.middleware import FIELDS, Gate, Keys, Observed
from rerank.serving.model_source import Champion, Watch
from rerank.serving.schemas import (
    AssessRequest,
    Passages,
    Problem,
    Refusal,
    RerankRequest,
    RerankResponse,
    SearchRequest,
    SearchResponse,
    passages,
    reranked,
    searched,
    sentence_of,
)
from rerank.serving.settings import Settings
from rerank.serving.worker import Answer, Batcher, Question
from rerank.types import Query

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        401: "no key of this server",
        408: "the request came too slowly",
        409: "scores of another reranker",
        413: "the body is too large",
        415: "not JSON",
        422: "a field is missing, of the wrong kind or too large",
        429: "too many requests are in hand; Retry-After says when to come again",
        503: "the turn did not come in time",
        504: "the answer was not ready in time",
    }.items()
}


def create_app(champion: Champion, settings: Settings, keys: Keys) -> FastAPI:
    """The application; it works from its start-up to its shutdown, which finishes what it took."""
    metrics = champion.metrics
    batcher = Batcher(champion, settings)
    watch = Watch(champion, settings.poll)

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError, AttributeError):
            # not on every system, and only in a main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, watch.look_now)
        watch.start()
        yield
        watch.end()
        await asyncio.to_thread(batcher.finish)

    app = FastAPI(
        title="calibrated-rerank",
        description="Retrieval that knows when it is right. Every probability is calibrated.",
        version="1",
        lifespan=life,
        docs_url=None,  # their pages load scripts from the network
        redoc_url=None,
        responses=REFUSALS,
        dependencies=[Security(HTTPBearer(auto_error=False))],  # told here, checked by the gate
    )
    app.add_middleware(Gate, settings=settings, keys=keys, metrics=metrics, wait=batcher.wait)
    app.add_middleware(Observed, metrics=metrics)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)

    async def ask(request: Request, question: Question) -> Answer:
        _check(question.query, settings)
        fields = getattr(request.state, FIELDS)
        fields |= {"route": question.route, "documents": question.documents}
        if settings.log_text:
            fields["text"] = question.query.text
        found, served = await batcher.ask(question)
        fields |= {"confidence": found.confidence, "level": found.level, "model": served.version}
        return found, served

    @app.post("/v1/search", tags=["answers"])
    async def search(request: Request, asked: SearchRequest) -> SearchResponse:
        """Find passages in the index, and say how sure to be of the first."""
        found, served = await ask(
            request, Question("search", Query(asked.question, metadata=asked.metadata or {}))
        )
        return searched(found, served, asked, request.state.request_id)

    @app.post("/v1/rerank", tags=["answers"], response_model_exclude_none=True)
    @app.post("/v2/rerank", include_in_schema=False, response_model_exclude_none=True)
    @app.post("/rerank", include_in_schema=False, response_model_exclude_none=True)
    async def rerank(request: Request, asked: RerankRequest) -> RerankResponse:
        """Order the caller's documents. `relevance_score` is a probability."""
        query = Query(asked.query, metadata=asked.metadata or {}, passages=_passages(asked))
        found, served = await ask(request, Question("rerank", query))
        return reranked(found, served, asked, request.state.request_id)

    @app.post("/v1/assess", tags=["answers"], response_model_exclude_none=True)
    async def assess(request: Request, asked: AssessRequest) -> RerankResponse:
        """Say how sure to be of documents that this model's cross-encoder has scored already."""
        passages = _passages(asked)
        if len(asked.scores) != len(passages):
            raise Refusal(
                422,
                f"scores: expected one a document, {len(passages)}, got {len(asked.scores)}",
                reason="input",
            )
        scores = np.array(asked.scores, dtype=np.float64)
        query = Query(asked.query, metadata=asked.metadata or {}, passages=passages, logits=scores)
        found, served = await ask(request, Question("assess", query, asked.reranker))
        return reranked(found, served, asked, request.state.request_id)

    @app.get("/v1/model", tags=["about"])
    async def model() -> dict[str, Any]:
        """Which model answers: its fingerprints, and how reliable it was measured to be."""
        return champion.current.described()

    @app.get("/healthz", tags=["about"], response_class=PlainTextResponse)
    async def healthz() -> str:
        """Whether the process lives."""
        return "ok\n"

    @app.get("/readyz", tags=["about"], response_class=PlainTextResponse)
    async def readyz() -> str:
        """Whether it answers questions."""
        if not batcher.alive:
            raise Refusal(503, "the ranking thread does not run", reason="dead")
        return "ready\n"

    @app.get("/metrics", tags=["about"], response_class=PlainTextResponse)
    async def measured() -> Response:
        """What is counted, for Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


def _passages(asked: Passages) -> tuple[Any, ...]:
    unread = sorted(set(asked.rank_fields or ()) - {"text", "title"})
    if unread:
        raise Refusal(
            422, f"rank_fields: only text and title are read, got {unread[0]!r:.80}", reason="input"
        )
    return passages(asked.documents)


def _check(query: Query, settings: Settings) -> None:
    """Refuse what is empty, or more than the settings allow."""
    passages = query.passages or ()
    if not query.text.strip():
        raise Refusal(422, "the question is empty; expected some words", reason="input")
    texts = [query.text, *(p.full_text for p in passages)]
    if not all(map(can_be_written, texts)):
        raise Refusal(422, "a text holds half a surrogate pair, which is no text", reason="input")
    if len(query.text) > settings.max_query:
        raise Refusal(
            422,
            f"the question has {len(query.text)} characters, {settings.max_query} are allowed",
            reason="size",
        )
    if len(passages) > settings.max_documents:
        raise Refusal(
            422,
            f"there are {len(passages)} documents, {settings.max_documents} are allowed",
            reason="size",
        )
    for i, passage in enumerate(passages):
        if len(passage.full_text) > settings.max_document:
            raise Refusal(
                422,
                f"documents.{i} has {len(passage.full_text)} characters, "
                f"{settings.max_document} are allowed",
                reason="size",
            )


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    raise Refusal(422, sentence_of(error.errors()), reason="input")


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # FastAPI's for all that breaks its parser
        raise Refusal(422, "the body is no JSON that can be read", reason="input")
    raise Refusal(
        error.status_code, str(error.detail), reason="http", headers=dict(error.headers or {})
    )

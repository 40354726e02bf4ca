"""The HTTP API: its routes, and which request and answer belong to each. It computes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from rerank.errors import InputError, RetrieverError
from rerank.serving import responses
from rerank.serving.middleware import ApiKeys, RequestGuard, RequestLog
from rerank.serving.model_source import ModelHolder, Poller
from rerank.serving.parts import Part, RequestAssessor, parts_of
from rerank.serving.refusals import SHOWN, ErrorResponse, Refusal, sentence_of
from rerank.serving.requests import AssessRequest, RerankRequest, SearchRequest, StrictRoute
from rerank.serving.settings import Settings
from rerank.serving.systemone import decisions
from rerank.serving.telemetry import event
from rerank.serving.worker import Worker

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES = {  # of the core: address -> PACKAGE/FILE, which lies in the package's folder `static`
    "/reliability": "rerank.serving/reliability.html",
    **{
        f"/static/{name}": f"rerank.serving/{name}"
        for name in ("icon.svg", "page.css", "page.js", "reliability.js")
    },
}
LINK = re.compile(rb' ?<a href="(/\w*)"[^>]*>\w+</a>')  # to a page, in the list of pages
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes(pages: Mapping[str, str], unlinked: Collection[str] = ()) -> APIRouter:
    """One route per file; a page links to itself, and to those there that are not `unlinked`."""
    router = APIRouter(include_in_schema=False)
    linked = {path.encode() for path in pages if path not in unlinked}
    for path, name in pages.items():
        package, _, file = name.partition("/")
        content = files(package).joinpath("static", file).read_bytes()
        if file.endswith(".html"):
            for link in LINK.finditer(content):
                if link[1] not in (*linked, path.encode()):
                    content = content.replace(link[0], b"")
        kind = f"{KINDS[file.rpartition('.')[2]]}; charset=utf-8"

        async def page(_: Request, content: bytes = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=HEADERS)

        router.add_route(path, page, methods=["GET", "HEAD"])
    return router


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": text}
    for status, text in {
        400: "no request of HTTP/1.1",
        401: "no key of this server",
        404: "no such route, no such answer in the journal, or nothing of that name to label",
        405: "not with this method",
        408: "the request came too slowly",
        409: "scores of another reranker, or a passage that is not there or asked about any more",
        413: "the body is too large, or its documents would take too long",
        415: "the Content-Type is not application/json in UTF-8, or the body is compressed",
        421: "a server without keys was asked under another name than localhost",
        422: "not JSON, or a field or a parameter is missing, unknown, wrong or too large",
        431: "too many headers",
        429: "the server is busy; Retry-After says when to try again",
        500: "a defect of the server; its log has more under the id of the request",
        503: "the server is busy, or a search system or model behind it does not answer",
        504: "the answer was not ready in time",
    }.items()
}


class TextScore(BaseModel):
    """One of the texts of a client of TEI."""

    index: int = Field(description="its place in the request, from 0")
    score: float = Field(description="P(this text is right)")
    text: str | None = None


def create_app(
    holder: ModelHolder, settings: Settings, keys: ApiKeys, given: Mapping[str, Any] | None = None
) -> FastAPI:
    """The application; on shutdown it answers the requests accepted before.

    `given` is what the rooms' parts get beside the settings, by the name of the room.
    """
    worker = Worker(holder, settings)
    pollers = (
        Poller("polling", settings.poll, lambda asked: holder.refresh(now=asked)),
        Poller("probing", 60 * settings.probe, lambda _: holder.probe()),
    )
    assessor = RequestAssessor(worker, settings)
    parts = parts_of(holder, settings, assessor, given or {})
    app = FastAPI(
        title="calibrated-rerank",
        description="Retrieval that knows when it is right. Every probability is calibrated.",
        version="1",
        lifespan=partial(_life, worker, pollers, parts),
        docs_url=None,  # their pages load scripts from the network
        redoc_url=None,
        redirect_slashes=False,  # such an address is unknown, and a proxy's scheme is not ours
        responses=REFUSALS,
        dependencies=[Security(HTTPBearer(auto_error=False))],  # for the schema; the guard checks
    )
    pages = {**PAGES, **{path: name for part in parts for path, name in part.pages.items()}}
    routers = (
        _answers(assessor),
        decisions(assessor, settings),
        *(router for part in parts for router in part.routers),
        page_routes(pages, [path for part in parts if not part.linked for path in part.pages]),
        _about(holder, worker),
    )
    for router in routers:
        app.include_router(router)
    owners: list[APIRouter | FastAPI] = [app, *routers]
    paths = {getattr(route, "path", "") for owner in owners for route in owner.routes}
    metrics, again = holder.metrics, worker.retry_after
    app.add_middleware(  # the innermost layer first
        RequestGuard, settings=settings, keys=keys, metrics=metrics, retry_after=again, pages=pages
    )
    for layer, arguments in (one for part in parts for one in part.middleware):
        app.add_middleware(layer, **arguments)
    app.add_middleware(RequestLog, metrics=metrics, paths=paths)
    if settings.origins:  # the outermost: a page may read refusals too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["Retry-After", "X-Labels-Left-Out", "X-Request-ID"],
        )
    for kind in (RequestValidationError, InputError, RetrieverError, HTTPException):
        app.add_exception_handler(kind, _refused)
    return app


@contextlib.asynccontextmanager
async def _life(
    worker: Worker, pollers: Sequence[Poller], parts: Sequence[Part], _: FastAPI
) -> AsyncIterator[None]:
    """Start the worker and the pollers with the server; stop them, and the parts, with it."""
    worker.start()
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError, AttributeError):
        # not on every system, and only in a main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, pollers[0].poll_now)
    for poller in pollers:
        poller.start()
    yield
    for poller in pollers:
        poller.stop()
    for part in parts:
        part.stop()
    await asyncio.to_thread(worker.finish)
    for part in parts:
        await asyncio.to_thread(part.finish)


def _answers(assessor: RequestAssessor) -> APIRouter:
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.post("/v1/search", response_model_exclude_unset=True)
    async def search(request: Request, body: SearchRequest) -> responses.SearchResponse:
        """Find passages in the index, with the confidence that the first one is right."""
        done = await assessor(request, body)
        return responses.search_response(done.assessment, body, done.names)

    @router.post("/v1/rerank", response_model_exclude_none=True)
    @router.post("/v2/rerank", include_in_schema=False, response_model_exclude_none=True)
    @router.post("/rerank", include_in_schema=False, response_model_exclude_none=True)
    async def rerank(
        request: Request, body: RerankRequest
    ) -> responses.RerankResponse | list[TextScore]:
        """Order the caller's documents. `relevance_score` is a probability.

        Who names them `texts`, as clients of TEI do, gets a bare list.
        """
        done = await assessor(request, body)
        answer = responses.rerank_response(done.assessment, body, done.names)
        if not body.bare:
            return answer
        scored = [(r, r.document.text if r.document else None) for r in answer.results]
        return [TextScore(index=r.index, score=r.relevance_score, text=t) for r, t in scored]

    @router.post("/v1/assess", response_model_exclude_none=True)
    async def assess(request: Request, body: AssessRequest) -> responses.RerankResponse:
        """Assess documents that this model's cross-encoder has already scored."""
        done = await assessor(request, body, body.reranker)
        return responses.rerank_response(done.assessment, body, done.names)

    return router


def _about(holder: ModelHolder, worker: Worker) -> APIRouter:
    router = APIRouter(tags=["about"])

    @router.get("/v1/model", response_model=responses.ModelDescription)
    async def model() -> dict[str, Any]:
        """Return the current model: its fingerprints and its measured reliability."""
        return holder.current.described()

    @router.get("/v1/reliability", response_model=responses.ReliabilityPage)
    async def reliability() -> dict[str, Any]:
        """Return how true the confidence was measured to be, and what each threshold accepts."""
        return holder.current.reliability_page()

    @router.get("/healthz", response_class=PlainTextResponse)
    @router.head("/healthz", include_in_schema=False)
    async def healthz() -> str:
        """Whether the process is alive."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse)
    @router.head("/readyz", include_in_schema=False)
    async def readyz() -> str:
        """Whether it answers queries, and whether its remote models are those of the fit."""
        if not worker.alive():
            raise Refusal(503, "the ranking thread does not run", "dead")
        shifted = holder.current.model.shifted
        but = f", uncalibrated: another {shifted} than at the fit, or none" if shifted else ""
        return f"ready{but}\n"

    @router.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """The metrics, for Prometheus."""
        return Response(generate_latest(holder.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer an error of a request, of the search system or of HTTP with a sentence of ours."""
    if isinstance(error, RetrieverError):
        event("the search system failed", severity=logging.ERROR, why=str(error))  # in our log only
        why = "another system that this server asks does not answer; try again later"
        raise Refusal(503, why, "retriever")
    if isinstance(error, RequestValidationError):
        raise Refusal(422, sentence_of(error.errors()), "input")
    if not isinstance(error, HTTPException):
        raise Refusal(422, str(error), "input")
    if error.status_code == 400:  # FastAPI raises it for any body that its parser cannot read
        raise Refusal(422, "the body is not JSON that can be read", "input")
    message = str(error.detail)
    if error.status_code in (404, 405):
        asked = f"{request.method[:SHOWN]} {request.url.path[:SHOWN]}"
        message = f"there is no {asked!a}; the routes are at /openapi.json"
    raise Refusal(error.status_code, message, "http", dict(error.headers or {}))

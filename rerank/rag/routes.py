"""Routes built on an assessment: adaptive retrieval, explanations, bounded answers; and a passage
of an answer in its document.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from rerank.advice import explanation
from rerank.advice.adaptive import check_floor, guaranteed, take
from rerank.advice.answer_settings import AnswerConfig
from rerank.advice.places import MAX_BYTES, in_document, place_of
from rerank.advice.strategies import Strategy
from rerank.data.duplicates import distinct
from rerank.errors import InputError
from rerank.rag.answer.bounded import BoundedAnswer
from rerank.rag.answer.llm import LanguageModel
from rerank.rag.answer.model_answers import answer_assessed, extractive
from rerank.rag.responses import (
    AnswerResponse,
    AskPage,
    DocumentPage,
    ExplainResponse,
    RetrieveResponse,
)
from rerank.serving.middleware import while_connected
from rerank.serving.parts import Host, Part
from rerank.serving.refusals import Refusal, not_ready
from rerank.serving.request_assessor import AssessedRequest, RequestAssessor
from rerank.serving.requests import IndexRequest, StrictRoute
from rerank.serving.responses import assessment_fields
from rerank.serving.telemetry import event
from rerank.types import Passage, RankedPassage

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.serving.model_source import ModelHolder


LARGEST_ROW = 2**53  # the largest whole number that JavaScript has
ELSEWHERE = "the passages come from another search system, which knows the rest of their documents"
NO_INDEX = "this model has no index: the passages come with each request"
MOVED = "the model has changed since, and has another passage there; ask again"


def document_route(holder: ModelHolder) -> APIRouter:
    """The route, with the holder's current model."""
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.get("/v1/document", response_model=DocumentPage)
    async def document(
        row: int = Query(ge=0, le=LARGEST_ROW, description="of the passage, as /v1/ask returns it"),
        doc_id: str = Query(min_length=1, description="of the passage at that row"),
    ) -> dict[str, Any]:
        """Return a passage between its neighbours in the document: at most 64 KiB of these."""
        return await asyncio.to_thread(_document_response, holder.current.model, row, doc_id)

    return router


def _document_response(model: CalibratedReranker, row: int, doc_id: str) -> dict[str, Any]:
    corpus = model.source.corpus
    if corpus is None:
        why = ELSEWHERE if model.source.elsewhere else NO_INDEX
        raise Refusal(404, why, reason="document")
    if row >= len(corpus) or corpus.passage(row).doc_id != doc_id:
        raise Refusal(409, MOVED, reason="document")
    found = in_document(corpus, row)
    return {
        "document": found.document,
        "passages": [shown_passage(passage) for passage in found.passages],
        "found": found.found,
        "more_before": found.more_before,
        "more_after": found.more_after,
        "most_bytes": MAX_BYTES,
    }


def shown_passage(passage: Passage | RankedPassage) -> dict[str, Any]:
    """A passage's id, title, text and place, as a page shows them."""
    return {
        "doc_id": passage.doc_id,
        "title": passage.title,
        "text": passage.text,
        **asdict(place_of(passage)),
    }


PAGES = {  # of this room
    "/": "rerank.rag/ask.html",
    "/static/ask.js": "rerank.rag/ask.js",
    "/static/document.js": "rerank.rag/document.js",
}
SHOWN = 10  # passages that a page lists
THREADS = 16  # answers written at once
EXAMPLE: dict[str, Any] = {"examples": [{"query": "median along an axis while ignoring NaNs"}]}


class PlainRequest(IndexRequest):
    """A query for the index, and nothing else."""

    model_config: ClassVar[Any] = {"extra": "ignore", "json_schema_extra": EXAMPLE}


class AskRequest(PlainRequest):
    """A query of the Ask page."""

    stream: bool = Field(False, strict=True, description="lines of JSON, the answer in the last")


def _of_strategy(name: str) -> Any:
    """A field of a request with the default and the help of a field of `Strategy`."""
    defined = next(f for f in fields(Strategy) if f.name == name)
    return Field(defined.default, strict=True, description=defined.metadata["option"].help)


class RetrieveRequest(PlainRequest):
    """A query for the index, and how many passages to return."""

    min_k: int = _of_strategy("min_k")
    max_k: int = _of_strategy("max_k")
    sufficiency_threshold: float = _of_strategy("sufficiency_threshold")
    similarity_floor: float = _of_strategy("similarity_floor")
    least_gain: float = _of_strategy("least_gain")
    guaranteed: bool = Field(
        False,
        strict=True,
        description="return as few passages as possible: at most one question in twenty loses an "
        "answer that is among the first ten; the fields that are numbers are then refused",
    )

    def to_strategy(self) -> Strategy | None:
        """The numbers of the request; None for the model's guaranteed strategy.

        Raises:
            InputError: one is out of range, `min_k` is above `max_k`, or they are given beside
                `guaranteed`.
        """
        numbers = {f.name: getattr(self, f.name) for f in fields(Strategy)}
        if not self.guaranteed:
            return Strategy(**numbers)
        if given := sorted(numbers.keys() & self.model_fields_set):
            raise InputError(f"`guaranteed` chooses all numbers itself; remove {', '.join(given)}")
        return None


def part(host: Host) -> Part:
    """The routes of this room, and the page that asks."""
    writer = Writer(host.given or AnswerConfig(), host.settings.timeout)
    routes = rag_routes(host.assessor, writer, feedback=bool(host.settings.journal))
    return Part([routes, document_route(host.holder)], PAGES, finish=writer.close)


class Writer:
    """Writes the answers of a server, in the words of the sources or by a language model.

    In threads, as the cross-encoder reads a sentence where words cannot decide, and as a language
    model is waited for. A thread that nobody waits for any more ends by itself.

    Raises:
        InputError: the prompt cannot be read.
        MissingExtraError: the client of the language model is not installed.
    """

    def __init__(self, config: AnswerConfig, seconds: float) -> None:
        self._config, self._seconds = config, seconds  # the time limit of a request
        chosen = config.language_model
        self._language_model = LanguageModel(chosen) if chosen.llm else None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="answers")
        self.close = partial(self._threads.shutdown, wait=False, cancel_futures=True)

    async def __call__(self, done: AssessedRequest) -> BoundedAnswer:
        """The answer, as the command line gives it.

        Raises:
            Refusal: 504 if the time limit of the request is over.
        """
        model = done.served.model
        going = asyncio.get_running_loop().run_in_executor(
            self._threads,
            answer_assessed,
            model,
            done.assessment,
            self._config,
            self._language_model or extractive(model),
            done.served.kept.get("rag"),
        )
        try:
            async with asyncio.timeout_at(done.deadline):
                made = await going
        except TimeoutError:
            raise not_ready(self._seconds) from None
        if made.error:  # it names the endpoint, which clients need not know
            event("the language model failed", severity=logging.ERROR, why=made.error)
            made = replace(made, error="the language model gave no answer; try again later")
        return made


def rag_routes(assessor: RequestAssessor, writer: Writer, *, feedback: bool = False) -> APIRouter:
    """The routes; `assessor` makes the assessments, and `writer` the answers.

    feedback: whether the server accepts feedback on its answers.
    """
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.post("/v1/retrieve", response_model=RetrieveResponse, response_model_exclude_unset=True)
    async def retrieve(request: Request, body: RetrieveRequest) -> dict[str, Any]:
        """Return as many passages as the question needs."""
        given = body.to_strategy()
        done = await assessor(request, body)
        if "similarity_floor" in body.model_fields_set:
            check_floor(done.served.model)
        strategy = given or guaranteed(done.served.model.maps["search"])
        return {**_named(done), **take(done.assessment, strategy).to_dict()}

    @router.post("/v1/explain", response_model=ExplainResponse)
    async def explain(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Explain the confidence: its signals, what moved it, and what to do."""
        done = await assessor(request, body)
        told = explanation.explain(done.served.model, done.assessment)
        return {**_named(done), **told.to_dict()}

    @router.post("/v1/answer", response_model=AnswerResponse, response_model_exclude_unset=True)
    async def answer(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Answer from the sources alone, or refuse."""
        done = await assessor(request, body)
        made = await while_connected(request.receive, writer(done))
        done.answer = None if made.error else made
        return {**_named(done), **made.to_dict(), "query_id": done.request_id}

    @router.post("/v1/ask", response_model=AskPage, response_model_exclude_unset=True)
    async def ask(request: Request, body: AskRequest) -> dict[str, Any] | Response:
        """Return all that the page shows: the answer, its confidence and why, and its sources.

        As a `stream` it is lines of JSON: all but the answer first, then {"answer"} when its
        sentences are checked, or {"message"} if there is none in time.
        Of equal passages only the first is listed. The page asks whether the first passage is
        right, so the journal keeps a search, as feedback on an answer is about its text.
        """
        done = await assessor(request, body)
        assessment, model = done.assessment, done.served.model
        taken, listed = take(assessment), assessment.first(SHOWN)
        why = explanation.explain(model, assessment).to_dict()
        page = {
            **_named(done),
            "assessment": assessment_fields(assessment),
            "feedback": feedback,
            "k": taken.k,
            "sufficiency_k": assessment.sufficiency_k,
            "stop_reason": taken.stop_reason,
            "passages": [passage_fields(listed[i], model) for i in distinct(listed)[0]],
            "signals": why["signals"],
            "recommendations": why["recommendations"],
        }

        async def written() -> dict[str, Any]:
            made = await writer(done)
            return {"answer": {**made.to_dict(), "query_id": done.request_id}}

        if not body.stream:
            return {**page, **await while_connected(request.receive, written())}

        async def lines() -> AsyncIterator[str]:
            yield json.dumps(page) + "\n"
            try:
                yield json.dumps(await written()) + "\n"
            except Refusal as refusal:
                yield json.dumps({"message": refusal.sentence}) + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    return router


def passage_fields(passage: RankedPassage, model: CalibratedReranker) -> dict[str, Any]:
    """A passage with its text and its place, as a page shows it.

    `row` is its row in the model's index, for `/v1/document`; None if the model has no index.
    """
    row = passage.row if model.source.folder else None
    return {**passage.to_dict(), **shown_passage(passage), "row": row}


def _named(done: AssessedRequest) -> dict[str, str]:
    return {"id": done.request_id, "model": done.served.version}

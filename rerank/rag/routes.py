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
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from rerank.advice import explanation
from rerank.advice.adaptive import check_floor, guaranteed, take
from rerank.advice.settings import AnswerConfig, Strategy
from rerank.data.duplicates import distinct
from rerank.errors import InputError
from rerank.rag.answer.answering import answer_assessed
from rerank.rag.answer.bounded import BoundedAnswer
from rerank.rag.answer.llm import LanguageModel
from rerank.retrieval.corpus import MAX_BYTES, in_document, place_of
from rerank.serving import responses
from rerank.serving.middleware import while_connected
from rerank.serving.parts import AssessedRequest, Host, Part, RequestAssessor
from rerank.serving.refusals import Refusal, not_ready
from rerank.serving.requests import IndexRequest, StrictRoute, configured
from rerank.serving.responses import Confident, Marked, Named, SearchResult, Verdict, key
from rerank.serving.telemetry import event
from rerank.types import Passage, RankedPassage

if TYPE_CHECKING:
    from rerank.serving.model_source import ModelHolder


LARGEST_ROW = 2**53  # the largest whole number that JavaScript has
ELSEWHERE = "the passages come from another search system, which knows the rest of their documents"
NO_INDEX = "this model has no index: the passages come with each request"
MOVED = "the model has changed since, and has another passage there; ask again"
PAGES = {  # of this room
    "/": "rerank.rag/ask.html",
    "/static/ask.js": "rerank.rag/ask.js",
    "/static/document.js": "rerank.rag/document.js",
}
SHOWN = 10  # passages that a page lists
THREADS = 16  # answers written at once
StopReason = Literal["threshold", "max_k", "least_gain", "no_more", "no_results", "no_passages"]


class PlainRequest(IndexRequest):
    """A query for the index, and nothing else."""

    model_config = configured(example={"query": "median along an axis while ignoring NaNs"})


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
        """The numbers of the request; None for the model's guaranteed strategy, without any."""
        numbers = {f.name: getattr(self, f.name) for f in fields(Strategy)}
        if not self.guaranteed:
            return Strategy(**numbers)
        if given := sorted(numbers.keys() & self.model_fields_set):
            raise InputError(f"`guaranteed` chooses all numbers itself; remove {', '.join(given)}")
        return None


class Signal(BaseModel):
    """A property of the ranking, and how much it moved the confidence."""

    name: str
    value: float
    meaning: str = Field(description="what the value means, in words")
    log_odds: float = Field(description="what it added, compared with a usual question")
    moved: float = Field(description="the same in probability")
    told: bool = Field(description="one of the at most three that a page names")


class RetrieveResponse(Marked, Confident, Named):
    """As many passages as the question needs."""

    k: int = key("k")
    sufficiency: float = key("sufficiency")
    verdict: Verdict = key("verdict")
    stop_reason: StopReason = key("stop_reason")
    passages: list[SearchResult] = key("passages")


class ExplainResponse(Confident, Named):
    """Why the confidence is what it is."""

    headline: str = key("headline")
    interpretation: str = key("interpretation")
    flagged: bool = key("flagged")
    signals: list[Signal] = key("signals")
    recommendations: list[str] = key("recommendations")


class AnswerFields(Marked, Confident):
    """An answer in the words of the sources, or the refusal to give one."""

    query_id: str = key("query_id")
    answer: str = key("answer")
    refused: bool = key("refused")
    low_confidence: bool = key("low_confidence")
    sufficiency: float | None = key("sufficiency")
    verdict: Verdict | Literal["UNASSESSED"] = key("verdict")
    sources: list[dict[str, Any]] = key("sources")
    attribution_coverage: float | None = key("attribution_coverage")
    model_calls: int = key("model_calls")
    answer_confidence: float | None = key("answer_confidence", None)
    answer_level: responses.Level | None = key("answer_level", None)
    cut_off: bool | None = key("cut_off", None)
    error: str | None = key("error", None)


class AnswerResponse(AnswerFields, Named):
    """The same, of a request."""


class Place(BaseModel):
    """Where a passage stands."""

    document: str = Field(description="that the passage is of")
    heading: str = Field(description="in the document; empty if it is not known")
    page: str = Field(description="in the document; empty if it is not known")


class ShownPassage(SearchResult, Place):
    """A passage with its place, as the page shows it."""

    row: int | None = Field(None, description="in the index, for /v1/document; null without one")


class AskPage(Named):
    """All that the Ask page shows."""

    answer: AnswerFields
    assessment: responses.AssessmentFields
    feedback: bool = Field(description="whether the server takes feedback on the answer")
    k: int = key("k")
    sufficiency_k: int = key("sufficiency_k")
    stop_reason: StopReason = key("stop_reason")
    passages: list[ShownPassage] = key("passages")
    signals: list[Signal] = key("signals")
    recommendations: list[str] = key("recommendations")


class PlacedPassage(Place):
    """A passage of a document."""

    doc_id: str = key("doc_id")
    title: str = key("title")
    text: str = key("text")


class DocumentPage(BaseModel):
    """A passage between its neighbours."""

    document: str
    passages: list[PlacedPassage] = Field(description="in their order in the document")
    found: int = Field(description="place of the passage that was asked for")
    more_before: bool
    more_after: bool
    most_bytes: int


def part(host: Host) -> Part:
    """The routes of this room, and the page that asks."""
    writer = Writer(host.given or AnswerConfig(), host.settings.timeout)
    routes = rag_routes(host.assessor, writer, feedback=bool(host.settings.journal))
    return Part([routes, document_route(host.holder)], PAGES, finish=writer.close)


class Writer:
    """Writes the answers of a server in threads, by quotations or by a language model."""

    def __init__(self, config: AnswerConfig, seconds: float) -> None:
        self._config, self._seconds = config, seconds  # the time limit of a request
        chosen = config.language_model
        self._language_model = LanguageModel(chosen) if chosen.llm else None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="answers")
        self.close = partial(self._threads.shutdown, wait=False, cancel_futures=True)

    async def __call__(self, done: AssessedRequest) -> BoundedAnswer:
        """The answer, as the command line gives it; a Refusal if the request's time is over."""
        given = self._config, self._language_model, done.served.kept.get("rag")
        write = partial(answer_assessed, done.served.model, done.assessment, *given)
        going = asyncio.get_running_loop().run_in_executor(self._threads, write)
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
    """The routes; `feedback`: whether the server accepts feedback on its answers."""
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.post("/v1/retrieve", response_model=RetrieveResponse, response_model_exclude_unset=True)
    async def retrieve(request: Request, body: RetrieveRequest) -> dict[str, Any]:
        """Return as many passages as the question needs."""
        given = body.to_strategy()
        done = await assessor(request, body)
        if "similarity_floor" in body.model_fields_set:
            check_floor(done.served.model)
        maps, found = done.served.model.maps["search"], done.assessment
        strategy = given or guaranteed(maps, found.ranking.query)
        return {**done.names, **take(found, strategy).to_dict()}

    @router.post("/v1/explain", response_model=ExplainResponse)
    async def explain(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Explain the confidence: its signals, what moved it, and what to do."""
        done = await assessor(request, body)
        return {**done.names, **explanation.explain(done.served.model, done.assessment).to_dict()}

    @router.post("/v1/answer", response_model=AnswerResponse, response_model_exclude_unset=True)
    async def answer(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Answer from the sources alone, or refuse."""
        done = await assessor(request, body)
        made = await while_connected(request.receive, writer(done))
        done.answer = None if made.error else made
        return {**done.names, **made.to_dict(), "query_id": done.request_id}

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
        indexed = bool(model.source.folder)
        why = explanation.explain(model, assessment).to_dict()
        page = {
            **done.names,
            "assessment": responses.assessment_fields(assessment),
            "feedback": feedback,
            "k": taken.k,
            "sufficiency_k": assessment.sufficiency_k,
            "stop_reason": taken.stop_reason,
            "passages": [
                {**one.to_dict(), **shown_passage(one), "row": one.row if indexed else None}
                for one in (listed[i] for i in distinct(listed)[0])
            ],
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


def document_route(holder: ModelHolder) -> APIRouter:
    """The route of a passage in its document, with the holder's current model."""
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.get("/v1/document", response_model=DocumentPage)
    def document(
        row: int = Query(ge=0, le=LARGEST_ROW, description="of the passage, as /v1/ask returns it"),
        doc_id: str = Query(min_length=1, description="of the passage at that row"),
    ) -> dict[str, Any]:
        """Return a passage between its neighbours in the document: at most 64 KiB of these."""
        source = holder.current.model.source
        if source.corpus is None:
            raise Refusal(404, ELSEWHERE if source.elsewhere else NO_INDEX, "document")
        if row >= len(source.corpus) or source.corpus.passage(row).doc_id != doc_id:
            raise Refusal(409, MOVED, "document")
        found = in_document(source.corpus, row)
        about = {n: getattr(found, n) for n in ("document", "found", "more_before", "more_after")}
        passages = [shown_passage(passage) for passage in found.passages]
        return {**about, "passages": passages, "most_bytes": MAX_BYTES}

    return router


def shown_passage(passage: Passage | RankedPassage) -> dict[str, Any]:
    """A passage's id, title, text and place, as a page shows them."""
    shown = {name: getattr(passage, name) for name in ("doc_id", "title", "text")}
    return {**shown, **asdict(place_of(passage))}

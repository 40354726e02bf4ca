"""Routes built on an assessment: adaptive retrieval, explanations, bounded answers."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field

from rerank.advice import explanation
from rerank.advice.adaptive import guaranteed, take
from rerank.advice.strategies import Strategy
from rerank.data.duplicates import distinct
from rerank.errors import InputError
from rerank.rag.answer.bounded import BoundedAnswer
from rerank.rag.answer.model_answers import answer_assessed, extractive
from rerank.rag.document_route import document_route, shown_passage
from rerank.rag.responses import (
    AnswerResponse,
    AskPage,
    ExplainResponse,
    RetrieveResponse,
)
from rerank.rag.settings import AnswerConfig
from rerank.serving.middleware import while_connected
from rerank.serving.parts import Host, Part
from rerank.serving.refusals import not_ready
from rerank.serving.request_assessor import AssessedRequest, RequestAssessor
from rerank.serving.requests import IndexRequest, StrictRoute
from rerank.serving.responses import assessment_fields
from rerank.types import RankedPassage

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker

PAGES = {  # of this room
    "/": "rerank.rag/ask.html",
    "/static/ask.js": "rerank.rag/ask.js",
    "/static/document.js": "rerank.rag/document.js",
}
SHOWN = 10  # passages that a page lists
EXAMPLE: dict[str, Any] = {"examples": [{"query": "median along an axis while ignoring NaNs"}]}


class PlainRequest(IndexRequest):
    """A query for the index, and nothing else."""

    model_config: ClassVar[Any] = {"extra": "ignore", "json_schema_extra": EXAMPLE}


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
    feedback, seconds = bool(host.settings.journal), host.settings.timeout
    routes = rag_routes(host.assessor, seconds=seconds, feedback=feedback)
    return Part([routes, document_route(host.holder)], PAGES)


def rag_routes(assessor: RequestAssessor, *, seconds: float, feedback: bool = False) -> APIRouter:
    """The routes; `assessor` makes the assessments.

    seconds: the time limit of a request, for the message.
    feedback: whether the server accepts feedback on its answers.
    """
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.post("/v1/retrieve", response_model=RetrieveResponse, response_model_exclude_unset=True)
    async def retrieve(request: Request, body: RetrieveRequest) -> dict[str, Any]:
        """Return as many passages as the question needs."""
        given = body.to_strategy()
        done = await assessor(request, body)
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
        """Answer in the words of the sources, or refuse."""
        done = await assessor(request, body)
        done.answer = made = await _answered(request, done, seconds)
        return {**_named(done), **made.to_dict(), "query_id": done.request_id}

    @router.post("/v1/ask", response_model=AskPage, response_model_exclude_unset=True)
    async def ask(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Return all that the page shows: the answer, its confidence and why, and its sources.

        Of equal passages only the first is listed. The page asks whether the first passage is
        right, so the journal keeps a search, as feedback on an answer is about its text.
        """
        done = await assessor(request, body)
        assessment, model = done.assessment, done.served.model
        taken, made = take(assessment), await _answered(request, done, seconds)
        why, listed = explanation.explain(model, assessment).to_dict(), assessment.first(SHOWN)
        return {
            **_named(done),
            "answer": {**made.to_dict(), "query_id": done.request_id},
            "assessment": assessment_fields(assessment),
            "feedback": feedback,
            "k": taken.k,
            "sufficiency_k": assessment.sufficiency_k,
            "stop_reason": taken.stop_reason,
            "passages": [passage_fields(listed[i], model) for i in distinct(listed)[0]],
            "signals": why["signals"],
            "recommendations": why["recommendations"],
        }

    return router


def passage_fields(passage: RankedPassage, model: CalibratedReranker) -> dict[str, Any]:
    """A passage with its text and its place, as a page shows it.

    `row` is its row in the model's index, for `/v1/document`; None if the model has no index.
    """
    row = passage.row if model.source.folder else None
    return {**passage.to_dict(), **shown_passage(passage), "row": row}


async def _answered(request: Request, done: AssessedRequest, seconds: float) -> BoundedAnswer:
    """The answer in the words of the sources, as the command line gives it.

    In a thread, as the cross-encoder reads a sentence where words cannot decide. A thread that
    nobody waits for any more ends by itself.
    """
    model = done.served.model
    work = asyncio.to_thread(
        answer_assessed,
        model,
        done.assessment,
        AnswerConfig(),
        extractive(model),
        done.served.kept.get("rag"),
    )
    try:
        async with asyncio.timeout_at(done.deadline):
            return await while_connected(request.receive, work)
    except TimeoutError:
        raise not_ready(seconds) from None


def _named(done: AssessedRequest) -> dict[str, str]:
    return {"id": done.request_id, "model": done.served.version}

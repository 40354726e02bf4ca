"""Routes built on an assessment: adaptive retrieval, retrieval assessment, bounded answers."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from rerank.data.equal_passages import distinct
from rerank.errors import InputError
from rerank.rag.adaptive import guaranteed, take
from rerank.rag.answer.bounded import BoundedAnswer
from rerank.rag.answer.model_answers import answer_assessed, extractive
from rerank.rag.retrieval_assessment import assess_with
from rerank.rag.settings import AnswerConfig, Strategy
from rerank.serving.assessed import Assessed
from rerank.serving.bodies import BodyRoute
from rerank.serving.document_route import shown_passage
from rerank.serving.model_source import ServedModel
from rerank.serving.requests import QueryRequest
from rerank.types import Assessment, RankedPassage

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker

SHOWN = 10  # passages that a page lists
EXAMPLE: dict[str, Any] = {"examples": [{"query": "median along an axis while ignoring NaNs"}]}


class PlainRequest(QueryRequest):
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
    confidence_threshold: float = _of_strategy("confidence_threshold")
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


def rag_routes(assessed: Assessed, *, feedback: bool = False) -> APIRouter:
    """The routes; `assessed` makes an assessment and puts its model in `request.state.served`.

    feedback: whether the server accepts feedback on its answers.
    """
    router = APIRouter(tags=["answers"], route_class=BodyRoute)

    @router.post("/v1/retrieve")
    async def retrieve(request: Request, body: RetrieveRequest) -> dict[str, Any]:
        """Return as many passages as the question needs."""
        given = body.to_strategy()
        found, names = await assessed(request, body)
        strategy = given or guaranteed(request.state.served.model.maps["search"])
        return {**_named(names), **take(found, strategy).to_dict()}

    @router.post("/v1/assess_retrieval")
    async def assess_retrieval(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Say how good the retrieval is: its signals, what moved the confidence, what to do."""
        found, names = await assessed(request, body)
        return {**_named(names), **assess_with(request.state.served.model, found).to_dict()}

    @router.post("/v1/answer")
    async def answer(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Answer in the words of the sources, or refuse."""
        found, names = await assessed(request, body)
        made = request.state.made = await _answered(found, request.state.served)
        return {**_named(names), **made.to_dict(), "query_id": names["request_id"]}

    @router.post("/v1/ask")
    async def ask(request: Request, body: PlainRequest) -> dict[str, Any]:
        """Return all that the page shows: the answer, its confidence and why, and its sources.

        Of equal passages only the first is listed.
        """
        found, names = await assessed(request, body)
        served = request.state.served
        model = served.model
        taken, made = take(found, AnswerConfig().strategy), await _answered(found, served)
        retrieval, listed = assess_with(model, found).to_dict(), found.first(SHOWN)
        return {
            **_named(names),
            "answer": {**made.to_dict(), "query_id": names["request_id"]},
            "assessment": found.to_dict(top=0),
            "feedback": feedback,
            "k": taken.k,
            "sufficiency_k": model.pipeline.config.sufficiency_k,
            "stop_reason": taken.stop_reason,
            "passages": [shown(listed[i], model) for i in distinct(listed)[0]],
            "signals": retrieval["signals"],
            "recommendations": retrieval["recommendations"],
        }

    return router


def shown(passage: RankedPassage, model: CalibratedReranker) -> dict[str, Any]:
    """A passage with its text and its place, as a page shows it.

    `row` is its row in the model's index, for `/v1/document`; None if the model has no index.
    """
    row = passage.row if model.index_folder else None
    return {**passage.to_dict(), **shown_passage(passage), "row": row}


async def _answered(assessment: Assessment, served: ServedModel) -> BoundedAnswer:
    """The answer in the words of the sources, as the command line gives it.

    In a thread: where words cannot decide, the cross-encoder reads a sentence.
    """
    model = served.model
    return await run_in_threadpool(
        answer_assessed, model, assessment, AnswerConfig(), extractive(model), served.answers
    )


def _named(names: dict[str, str]) -> dict[str, str]:
    return {"id": names["request_id"], "model": names["model"]}

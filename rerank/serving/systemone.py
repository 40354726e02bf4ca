"""`POST /v1/systemone`: the wire of decision models, answered with calibrated probabilities.

The state is the query. Instructions of a `noul` are one passage, whose relevance is the answer. The
criteria of a `choice` are passages by name; a name without a text is that none is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from rerank.data.checks import as_text, has_text
from rerank.errors import InputError
from rerank.serving.parts import AssessedRequest, RequestAssessor
from rerank.serving.refusals import not_ready
from rerank.serving.requests import HOSTED, DocumentsRequest, KnownFields, StrictRoute, configured
from rerank.serving.responses import Named, key
from rerank.serving.settings import Settings
from rerank.types import Assessment

PASSAGE = "Passage:"  # what follows it in instructions is the passage; else all of them are
TEXTS = ("passage", "document", "text")  # names of a passage in structured instructions


class Question(BaseModel):
    """One question about the state."""

    type: Literal["noul", "choice"]
    instructions: str | dict[str, Any] = ""
    criteria: dict[str, str | None] | None = None


class DecisionRequest(KnownFields):
    """A state, which is the query or holds it as `query`, and questions by name."""

    ignored: ClassVar[Mapping[str, str]] = HOSTED
    model_config = configured(
        example={
            "state": "median without NaNs",
            "questions": {"0": {"type": "noul", "instructions": "Passage: the median"}},
        }
    )

    state: str | dict[str, Any]
    questions: dict[str, Question] = Field(min_length=1)

    def asked(self, texts: list[str]) -> DocumentsRequest:
        """The query with these passages; an InputError if the state holds none."""
        query = self.state if isinstance(self.state, str) else self.state.get("query")
        if not isinstance(query, str):
            raise InputError("state: expected the query as a text, or as a field `query`")
        return DocumentsRequest.model_validate({"query": query, "documents": texts})


class Decided(BaseModel):
    """The answer to one question."""

    type: Literal["noul", "choice"] = Field(description="of the question")
    noul: float | None = Field(default=None, description="P(this passage is right)")
    choice: str | None = Field(default=None, description="the most probable name")
    probabilities: dict[str, float] | None = Field(
        default=None, description="of each name; their sum is 1"
    )
    confidence: float | None = key("confidence", None)
    probability_of_none: float | None = Field(
        default=None, description="P(no passage of it is right)"
    )


class DecisionResponse(Named):
    """The answers by the names of the questions, and how far to trust them."""

    answers: dict[str, Decided] = Field(description="by the names of the questions")
    calibrated: bool = key("calibrated")
    certified: bool = key("certified")
    probability_of_none: float = Field(description="P(no passage is right)")
    usage: dict[str, int] = Field(description="as Jina's clients read it; nothing is billed")


def decisions(assessor: RequestAssessor, settings: Settings) -> APIRouter:
    """The route. One assessment is for all nouls, and one for each choice; limits are of all."""
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.post("/v1/systemone", response_model=DecisionResponse, response_model_exclude_none=True)
    async def systemone(request: Request, body: DecisionRequest) -> DecisionResponse:
        """Answer typed questions about passages, as decision models do."""
        for name in body.questions:
            as_text("a name in questions", name, empty=True)
        nouls = {n: passage_of(n, q) for n, q in body.questions.items() if q.type == "noul"}
        choices = {n: options_of(n, q) for n, q in body.questions.items() if q.type == "choice"}
        texts = {n: [text for text in o.values() if text] for n, o in choices.items()}
        count, most = len(nouls) + sum(map(len, texts.values())), settings.max_documents
        if count > most:
            raise InputError(f"questions: there are {count} passages, at most {most} are taken")
        answers, made = dict[str, Decided](), list[AssessedRequest]()
        try:
            async with asyncio.timeout(settings.timeout):
                if nouls:
                    made.append(await assessor(request, body.asked(list(nouls.values()))))
                    by_name = zip(nouls, relevances(made[0].assessment), strict=True)
                    answers = {n: Decided(type="noul", noul=p) for n, p in by_name}
                for name, options in choices.items():
                    made.append(await assessor(request, body.asked(texts[name])))
                    answers[name] = chosen(options, made[-1].assessment)
        except TimeoutError:
            raise not_ready(settings.timeout) from None
        return DecisionResponse(
            answers={name: answers[name] for name in body.questions},
            calibrated=all(done.assessment.calibrated for done in made),
            certified=all(done.assessment.certified for done in made),
            probability_of_none=none_right(made[0].assessment),
            usage={"input_tokens": 0, "output_tokens": 0},
            **made[0].names,
        )

    return router


def passage_of(name: str, question: Question) -> str:
    """The passage that a noul is about; an InputError if it holds none."""
    given = question.instructions
    if isinstance(given, dict):
        given = next((given[key] for key in TEXTS if isinstance(given.get(key), str)), "")
    before, mark, passage = given.partition(PASSAGE)
    found = (passage if mark else before).strip()
    if not found:
        raise InputError(f"questions.{name}: expected a passage in its instructions, got none")
    return found


def options_of(name: str, question: Question) -> dict[str, str | None]:
    """The passages of a choice by name, None for at most one that says that none is right."""
    options = {
        as_text(f"questions.{name}", option, empty=True): text if text and has_text(text) else None
        for option, text in (question.criteria or {}).items()
    }
    without = list(options.values()).count(None)
    if without > 1 or len(options) == without:
        raise InputError(
            f"questions.{name}: expected criteria with a passage for each name, and none for one "
            f"name at most, which stands for no passage; {without} of {len(options)} have none"
        )
    return options


def relevances(assessment: Assessment) -> list[float]:
    """P(this passage is right) of each passage, in the order of the request."""
    by_place = {p.row: p.relevance for p in assessment.passages}
    return [by_place[place] for place in range(len(by_place))]


def none_right(assessment: Assessment) -> float:
    """P(no passage is right); beyond the tenth, passages add next to nothing to the sufficiency."""
    at = assessment.sufficiency_at
    return 1 - at[min(len(assessment.ranking), len(at)) - 1]


def chosen(options: Mapping[str, str | None], assessment: Assessment) -> Decided:
    """P(each name is the answer): passages share P(one is right) as their relevances do."""
    none, by_place = none_right(assessment), relevances(assessment)
    left, total = 1 - none if None in options.values() else 1.0, sum(by_place)
    shares = iter(p / total if total else 1 / len(by_place) for p in by_place)
    each = {o: none if text is None else left * next(shares) for o, text in options.items()}
    return Decided(
        type="choice",
        choice=max(each, key=each.__getitem__),
        probabilities=each,
        confidence=assessment.confidence,
        probability_of_none=none,
    )

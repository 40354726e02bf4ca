"""The schemas of what is built on an assessment: passages taken, explanations, answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from rerank.serving.responses import (
    AssessmentFields,
    Confident,
    Level,
    Named,
    SearchResult,
    Verdict,
    key,
)

StopReason = Literal["threshold", "max_k", "least_gain", "no_more", "no_results", "no_passages"]


class Signal(BaseModel):
    """A property of the ranking, and how much it moved the confidence."""

    name: str
    value: float
    meaning: str = Field(description="what the value means, in words")
    log_odds: float = Field(description="what it added, compared with a usual question")
    moved: float = Field(description="the same in probability")
    told: bool = Field(description="one of the at most three that a page names")


class RetrieveResponse(Confident, Named):
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


class AnswerFields(Confident):
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
    answer_level: Level | None = key("answer_level", None)
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
    assessment: AssessmentFields
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

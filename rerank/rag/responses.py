"""The schemas of what is built on an assessment: passages taken, explanations, answers."""

from __future__ import annotations

from typing import Any

from rerank.serving.responses import Answered, SearchResult, key


class RetrieveResponse(Answered):
    """As many passages as the question needs."""

    k: int = key("k")
    sufficiency: float = key("sufficiency")
    verdict: str = key("verdict")
    stop_reason: str = key("stop_reason")
    passages: list[SearchResult] = key("passages")


class ExplainResponse(Answered):
    """Why the confidence is what it is."""

    headline: str = key("headline")
    interpretation: str = key("interpretation")
    flagged: bool = key("flagged")
    signals: list[dict[str, Any]] = key("signals")
    recommendations: list[str] = key("recommendations")


class AnswerResponse(Answered):
    """An answer in the words of the sources, or the refusal to give one."""

    query_id: str = key("query_id")
    answer: str = key("answer")
    refused: bool = key("refused")
    low_confidence: bool = key("low_confidence")
    sufficiency: float | None = key("sufficiency")
    verdict: str = key("verdict")
    sources: list[dict[str, Any]] = key("sources")
    attribution_coverage: float | None = key("attribution_coverage")
    model_calls: int = key("model_calls")
    answer_confidence: float | None = key("answer_confidence", None)
    answer_level: str | None = key("answer_level", None)
    cut_off: bool | None = key("cut_off", None)
    error: str | None = key("error", None)

"""The schemas of answers, and how they are made of an assessment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, Field

from rerank.config import ACTIONS
from rerank.serving.requests import Document, DocumentsRequest, SearchRequest, as_document
from rerank.types import Assessment

JSON_KEYS: Mapping[str, str] = {
    "id": "of the answer, for feedback; over HTTP that of the request, as in X-Request-ID",
    "model": "version of the model that has answered, as at /v1/model",
    "query_id": "of the query; over HTTP that of the request",
    # the decision
    "confidence": "P(the first passage is right)",
    "level": "of the confidence: HIGH, MEDIUM, LOW or VERY_LOW",
    "flag": "the level as a name of its own, such as HIGH_CONFIDENCE",
    "action": "what to do at this level",
    "accepted": "confidence reaches the advisory threshold",
    "flagged": "not accepted: a person must check it before use",
    "threshold": "confidence from which an answer is accepted",
    "thresholds": "where the bands of level and verdict begin",
    "sufficiency": "P(one of the passages that are handed on is right), or of the first few",
    "sufficiency_at": "P(one of the first k is right), for k = 1 to 10",
    "sufficiency_k": "how many passages the sufficiency of a search is about",
    "verdict": "of the sufficiency: SUFFICIENT, PARTIAL or INSUFFICIENT",
    "note": "text to put before the passages; empty if they are sufficient",
    "certified": "accepted, the confidence reaches the certified threshold, and the question is "
    "like those that were labelled",
    "context_accepted": "the sufficiency reaches the threshold of SUFFICIENT, and is calibrated",
    "context_certified": "SUFFICIENT, and the sufficiency reaches its certified threshold",
    "calibrated": "false: no label of this corpus was fitted on; the numbers order, and no more",
    "first_stage": "the reranker failed, and the first stage has found and ordered the passages",
    "answered_by": "of a model that is two: first or second",
    "reasons": "where the confidence starts and what moved it",
    # passages
    "ranking": "the passages, best first",
    "passages": "the passages that are handed on, best first",
    "k": "how many passages are handed on",
    "stop_reason": "why there are so many",
    "doc_id": "id of the passage",
    "relevance": "P(this passage is right)",
    "logit": "of the cross-encoder, where it scored it",
    "bm25": "score of BM25",
    "dense": "cosine of the bi-encoder",
    "scores": "by stage, of another search system's passage",
    "title": "of the passage",
    "text": "of the passage",
    "metadata": "of the passage, which a filter goes by",
    # why
    "headline": "level and confidence in one line",
    "interpretation": "the level in words",
    "signals": "properties of the ranking, and how much each moved the confidence",
    "recommendations": "what to do about a low confidence",
    # a generated answer
    "answer": "sentences that the sources support, with citations such as [S1]; or the refusal",
    "refused": "the sources hold no answer, or support none",
    "low_confidence": "answered, although the verdict is PARTIAL or UNASSESSED",
    "sources": "the passages that support the answer, each with a quotation",
    "attribution_coverage": "share of the generated sentences that sources support",
    "model_calls": "calls of a language model",
    "answer_confidence": "P(the answer is right), if it was fitted on labelled answers",
    "answer_level": "as level, of the confidence of the answer",
    "cut_off": "the language model reached its limit of tokens: the end is missing",
    "error": "why the language model gave no answer",
}

Level = Literal["HIGH", "MEDIUM", "LOW", "VERY_LOW"]
Verdict = Literal["SUFFICIENT", "PARTIAL", "INSUFFICIENT"]


def key(name: str, *default: Any) -> Any:
    """A field with the meaning that its name has everywhere."""
    return Field(*default, description=JSON_KEYS[name])


class Named(BaseModel):
    """Which request was answered, by which model."""

    id: str = key("id")
    model: str = key("model")


class Confident(BaseModel):
    """How sure the model is of its first passage. Probabilities are calibrated."""

    confidence: float = key("confidence")
    level: Level = key("level")
    accepted: bool = key("accepted")
    calibrated: bool = key("calibrated")


class Marked(BaseModel):
    """Who has answered, where that is not one model as usual."""

    answered_by: Literal["first", "second"] | None = key("answered_by", None)
    first_stage: bool | None = key("first_stage", None)


class AssessmentFields(Marked, Confident):
    """How far to trust an answer."""

    sufficiency: float = key("sufficiency")
    sufficiency_at: list[float] = key("sufficiency_at")
    verdict: Verdict = key("verdict")
    certified: bool = key("certified")
    context_certified: bool = key("context_certified")
    reasons: list[str] = key("reasons")
    flagged: bool = key("flagged")
    action: str = Field(
        description=JSON_KEYS["action"], json_schema_extra={"enum": list(ACTIONS.values())}
    )
    threshold: float = key("threshold")
    context_accepted: bool = key("context_accepted")
    sufficiency_k: int = key("sufficiency_k")
    thresholds: dict[str, float] = key("thresholds")


class AssessmentResponse(AssessmentFields, Named):
    """The same, of a request."""


class SearchResult(BaseModel):
    """A passage of the index, or of an external search system; only the latter has `scores`."""

    doc_id: str = key("doc_id")
    relevance: float = key("relevance")
    logit: float | None = key("logit", None)
    bm25: float | None = key("bm25", None)
    dense: float | None = key("dense", None)
    scores: dict[str, float | None] | None = key("scores", None)
    title: str | None = key("title", None)
    text: str | None = key("text", None)
    metadata: dict[str, Any] | None = key("metadata", None)


class SearchResponse(AssessmentResponse):
    """The passages, best first."""

    ranking: list[SearchResult] = key("ranking")


class RerankResult(BaseModel):
    """One of the documents of the request."""

    index: int = Field(description="its place in the request, from 0")
    relevance_score: float = Field(description="P(this document is right)")
    document: Document | None = None


class RerankResponse(AssessmentResponse):
    """Results, best first, in the format of hosted rerank APIs, and how far to trust them."""

    results: list[RerankResult] = Field(description="the documents, best first")
    meta: dict[str, Any] = Field(description="as Cohere's clients read it")
    usage: dict[str, int] = Field(description="as Jina's clients read it; nothing is billed")


class ModelDescription(BaseModel):
    """The served model."""

    model: str = key("model")
    loaded: float = Field(description="when it was loaded, Unix time")
    fingerprints: dict[str, Any] = Field(description="of its networks and of how they are read")
    encoder: str
    reranker: str
    precision: str
    segment_by: str
    segments: list[str]
    stages: list[str] = Field(description="whose scores come with lists; empty: it scores itself")
    passages: int = Field(description="in its index")
    second: dict[str, Any] | None = Field(
        description="of a model that is two: both versions, and the confidences of the first one "
        "at which the second is asked"
    )
    queries: dict[str, Any] = Field(description="how many it was fitted and measured on")
    reliability: dict[str, Any] = Field(description="what was measured, as in reliability.json")


class ReliabilityPage(BaseModel):
    """The measured calibration of the served model."""

    model: str = key("model")
    name: str
    headline: list[str] = Field(description="the first lines of the report")
    curves: dict[str, list[dict[str, Any]]]
    threshold: float = Field(description="of `accepted`")
    certificate: str
    comparison: list[list[str]] = Field(description="confidences compared: a header, then rows")
    made_from: Any = Field(description="where the model comes from")


def assessment_fields(assessment: Assessment) -> dict[str, Any]:
    """An assessment and what to do with it, without its passages: see `AssessmentFields`."""
    fields = {
        **assessment.to_dict(top=0),
        "flagged": not assessment.accepted,
        "action": ACTIONS[assessment.level],
        "threshold": assessment.thresholds.advisory,
        "context_accepted": assessment.context_accepted,
        "sufficiency_k": assessment.sufficiency_k,
        "thresholds": asdict(assessment.thresholds),
    }
    return {name: fields[name] for name in AssessmentFields.model_fields if name in fields}


def search_response(
    assessment: Assessment, body: SearchRequest, names: Mapping[str, Any]
) -> SearchResponse:
    """The answer to a search; `names` are the fields of `Named`."""
    shown = body.return_documents
    ranking = [
        SearchResult(
            **passage.to_dict(),
            title=passage.title if shown else None,
            text=passage.text if shown else None,
            metadata=dict(passage.metadata) if shown else None,
        )
        for passage in assessment.first(body.top_n)
    ]
    return SearchResponse(**assessment_fields(assessment), **names, ranking=ranking)


def rerank_response(
    assessment: Assessment, body: DocumentsRequest, names: Mapping[str, Any]
) -> RerankResponse:
    """The answer to documents that came with the request; `names` are the fields of `Named`."""
    texts = body.documents if body.return_documents else ()
    results = [
        RerankResult(
            index=passage.row,
            relevance_score=passage.relevance,
            document=as_document(texts[passage.row]) if texts else None,
        )
        for passage in assessment.first(body.top_n or len(assessment.ranking))
    ]
    return RerankResponse(
        **assessment_fields(assessment),
        **names,
        results=results,
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
        usage={"total_tokens": 0, "prompt_tokens": 0},
    )

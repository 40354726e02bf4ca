"""The schemas of answers, and how they are made of an assessment."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from rerank.json_keys import JSON_KEYS
from rerank.serving.requests import Document, DocumentsRequest, SearchRequest, as_document
from rerank.types import Assessment


def key(name: str, *default: Any) -> Any:
    """A field with the meaning that its name has everywhere."""
    return Field(*default, description=JSON_KEYS[name])


class Answered(BaseModel):
    """Which request was answered, by which model, and how sure the model is of its first passage.

    Probabilities are calibrated.
    """

    id: str = key("id")
    model: str = key("model")
    confidence: float = key("confidence")
    level: str = key("level")
    accepted: bool = key("accepted")
    calibrated: bool = key("calibrated")


class AssessmentResponse(Answered):
    """How far to trust an answer."""

    sufficiency: float = key("sufficiency")
    sufficiency_at: list[float] = key("sufficiency_at")
    verdict: str = key("verdict")
    certified: bool = key("certified")
    context_certified: bool = key("context_certified")
    reasons: list[str] = key("reasons")


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


def search_response(
    assessment: Assessment, body: SearchRequest, *, model: str, request_id: str
) -> SearchResponse:
    """The answer to a search, by the model of that version."""
    ranking = [
        SearchResult(
            **passage.to_dict(),
            title=passage.title if body.return_documents else None,
            text=passage.text if body.return_documents else None,
        )
        for passage in assessment.first(body.top_n)
    ]
    return SearchResponse(
        **{**assessment.to_dict(top=0), "id": request_id, "model": model, "ranking": ranking}
    )


def rerank_response(
    assessment: Assessment, body: DocumentsRequest, *, model: str, request_id: str
) -> RerankResponse:
    """The answer to documents that came with the request, by the model of that version."""
    results = [
        RerankResult(
            index=passage.row,
            relevance_score=passage.relevance,
            document=as_document(body.documents[passage.row])
            if body.return_documents and body.documents
            else None,
        )
        for passage in assessment.first(body.top_n or len(assessment.ranking))
    ]
    return RerankResponse(
        **{**assessment.to_dict(top=0), "id": request_id, "model": model},
        results=results,
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
        usage={"total_tokens": 0, "prompt_tokens": 0},
    )

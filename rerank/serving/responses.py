"""The schemas of answers, and how they are made of an assessment."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from rerank.serving.requests import Document, DocumentsRequest, SearchRequest, as_document
from rerank.types import Assessment


class AssessmentResponse(BaseModel):
    """How far to trust an answer. Probabilities are calibrated."""

    id: str = Field(description="of the request, as in the header X-Request-ID and in the log")
    model: str = Field(description="version of the model that has answered, as at /v1/model")
    confidence: float = Field(description="P(the first passage is right)")
    sufficiency: float = Field(description="P(one of the first few is right)")
    sufficiency_at: list[float] = Field(description="the same for the first 1 to 10")
    level: str = Field(description="HIGH, MEDIUM, LOW or VERY_LOW confidence")
    verdict: str = Field(description="SUFFICIENT, PARTIAL or INSUFFICIENT context")
    accepted: bool = Field(description="confidence reaches the advisory threshold")
    certified: bool = Field(
        description="accepted, the confidence reaches the certified threshold, and the question "
        "is like those that were labelled"
    )
    context_certified: bool = Field(
        description="SUFFICIENT, and the sufficiency reaches its certified threshold"
    )
    calibrated: bool = Field(
        description="false: no label of this corpus was fitted on; the numbers order, and no more"
    )
    reasons: list[str]


class SearchResult(BaseModel):
    """A passage of the index, or of an external search system; only the latter has `scores`."""

    doc_id: str
    relevance: float = Field(description="P(this passage is right)")
    logit: float | None = Field(None, description="of the cross-encoder, where it scored it")
    bm25: float | None = None
    dense: float | None = None
    scores: dict[str, float | None] | None = Field(
        None, description="by stage, of another search system's passage"
    )
    title: str | None = None
    text: str | None = None


class SearchResponse(AssessmentResponse):
    """The passages found, best first."""

    ranking: list[SearchResult]


class RerankResult(BaseModel):
    """One of the documents of the request."""

    index: int = Field(description="its place in the request, from 0")
    relevance_score: float = Field(description="P(this document is right)")
    document: Document | None = None


class RerankResponse(AssessmentResponse):
    """Results, best first, in the format of hosted rerank APIs, and how far to trust them."""

    results: list[RerankResult]
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

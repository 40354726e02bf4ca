"""Documents to passages, and assessments to answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerank.serving.schemas import (
    Document,
    Found,
    Passages,
    RerankResponse,
    Result,
    SearchRequest,
    SearchResponse,
)
from rerank.serving.served import Served
from rerank.types import Assessment, Passage


def passages(documents: Sequence[str | Document]) -> tuple[Passage, ...]:
    """The documents as passages, named by their places."""
    return tuple(
        Passage(str(i), "", d) if isinstance(d, str) else Passage(str(i), d.title or "", d.text)
        for i, d in enumerate(documents)
    )


def searched(
    found: Assessment, served: Served, asked: SearchRequest, request_id: str
) -> SearchResponse:
    """The answer to a search."""
    told = found.to_dict(top=asked.top_n)
    ranking = [Found(**row) for row in told["ranking"]]
    if asked.return_documents:
        for row, passage in zip(ranking, found.ranking.passages, strict=False):
            row.title, row.text = passage.title, passage.text
    return SearchResponse(**_trust(found, served, request_id), ranking=ranking)


def reranked(found: Assessment, served: Served, asked: Passages, request_id: str) -> RerankResponse:
    """The answer to documents that came with the request, in the shape of hosted APIs."""
    ranking = found.ranking
    places = ranking.first_stage.rows.tolist()
    results = [
        Result(
            index=place,
            relevance_score=relevance,
            document=_document(asked.documents[place]) if asked.return_documents else None,
        )
        for place, relevance in zip(places, ranking.relevance.tolist(), strict=True)
    ]
    return RerankResponse(
        **_trust(found, served, request_id),
        results=results[: asked.top_n],
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 0}},
        usage={"total_tokens": 0, "prompt_tokens": 0},
    )


def _document(given: str | Document) -> Document:
    return Document(text=given) if isinstance(given, str) else given


def _trust(found: Assessment, served: Served, request_id: str) -> dict[str, Any]:
    return {
        "id": request_id,
        "model": served.version,
        "confidence": found.confidence,
        "sufficiency": found.sufficiency,
        "sufficiency_at": list(found.sufficiency_at),
        "level": found.level,
        "verdict": found.verdict,
        "accepted": found.accepted,
        "certified": found.certified,
        "reasons": list(found.reasons),
    }

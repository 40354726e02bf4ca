"""The route that shows a passage of an answer in its document. It searches nothing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Query

from rerank.advice.places import MAX_BYTES, in_document, place_of
from rerank.rag.responses import DocumentPage
from rerank.serving.refusals import Refusal
from rerank.serving.requests import StrictRoute
from rerank.types import Passage, RankedPassage

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker
    from rerank.serving.model_source import ModelHolder

LARGEST_ROW = 2**53  # the largest whole number that JavaScript has
ELSEWHERE = "the passages come from another search system, which knows the rest of their documents"
NO_INDEX = "this model has no index: the passages come with each request"
MOVED = "the model has changed since, and has another passage there; ask again"


def document_route(holder: ModelHolder) -> APIRouter:
    """The route, with the holder's current model."""
    router = APIRouter(tags=["answers"], route_class=StrictRoute)

    @router.get("/v1/document", response_model=DocumentPage)
    async def document(
        row: int = Query(ge=0, le=LARGEST_ROW, description="of the passage, as /v1/ask returns it"),
        doc_id: str = Query(min_length=1, description="of the passage at that row"),
    ) -> dict[str, Any]:
        """Return a passage between its neighbours in the document: at most 64 KiB of these."""
        return await asyncio.to_thread(_document_response, holder.current.model, row, doc_id)

    return router


def _document_response(model: CalibratedReranker, row: int, doc_id: str) -> dict[str, Any]:
    corpus = model.source.corpus
    if corpus is None:
        why = ELSEWHERE if model.source.elsewhere else NO_INDEX
        raise Refusal(404, why, reason="document")
    if row >= len(corpus) or corpus.passage(row).doc_id != doc_id:
        raise Refusal(409, MOVED, reason="document")
    found = in_document(corpus, row)
    return {
        "document": found.document,
        "passages": [shown_passage(passage) for passage in found.passages],
        "found": found.found,
        "more_before": found.more_before,
        "more_after": found.more_after,
        "most_bytes": MAX_BYTES,
    }


def shown_passage(passage: Passage | RankedPassage) -> dict[str, Any]:
    """A passage's id, title, text and place, as a page shows them."""
    return {
        "doc_id": passage.doc_id,
        "title": passage.title,
        "text": passage.text,
        **asdict(place_of(passage)),
    }

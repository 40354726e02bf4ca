"""A ranker for Haystack: a pipeline component with the same inputs as Haystack's own rankers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rerank.adapters.metadata import document_metadata, with_words
from rerank.errors import optional

with optional():
    from haystack import Document, component


@component  # type: ignore[misc, untyped-decorator]
class CalibratedRanker:
    """Orders documents by calibrated relevance, which becomes their score.

    `model` is from `rerank.load`. `min_relevance` leaves out documents that are likely to be wrong:
    0.0 keeps all, up to `top_k`.
    """

    def __init__(self, model: Any, *, top_k: int = 10, min_relevance: float = 0.0) -> None:
        self.model = model
        self.top_k = top_k
        self.min_relevance = min_relevance

    @component.output_types(documents=list[Document])  # type: ignore[misc, untyped-decorator]
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best documents, best first, without empty ones; the input ones are not changed."""
        documents = [documents[row] for row in with_words([d.content or "" for d in documents])]
        found = self.model.rerank(query, [d.content for d in documents])
        ranked = [
            replace(
                documents[p.row],
                score=p.relevance,
                meta={**documents[p.row].meta, **document_metadata(found, p)},
            )
            for p in found.first(self.top_k if top_k is None else top_k)
            if p.relevance >= self.min_relevance
        ]
        return {"documents": ranked}

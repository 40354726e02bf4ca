"""A ranker for Haystack: a pipeline component with the same inputs as Haystack's own rankers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rerank.adapters.metadata import rank_documents
from rerank.errors import optional

with optional():
    from haystack import Document, component


@component  # type: ignore[misc, untyped-decorator]
class CalibratedRanker:
    """Orders documents by calibrated relevance, which becomes their score.

    `model` is from `rerank.load`. `min_relevance` leaves out documents that are likely to be wrong:
    0.0 keeps all, up to `top_k`. Documents without a text are left out.
    """

    def __init__(self, model: Any, *, top_k: int = 10, min_relevance: float = 0.0) -> None:
        self.model = model
        self.top_k = top_k
        self.min_relevance = min_relevance

    @component.output_types(documents=list[Document])  # type: ignore[misc, untyped-decorator]
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best documents, best first; the input documents are not changed."""
        ranked = rank_documents(
            self.model,
            query,
            [(d.content or "", d.meta) for d in documents],
            count=self.top_k if top_k is None else top_k,
            min_relevance=self.min_relevance,
        )
        best = [
            replace(
                documents[place],
                score=added["relevance_score"],
                meta={**documents[place].meta, **added},
            )
            for place, added in ranked
        ]
        return {"documents": best}

"""LangChain: a compressor for `ContextualCompressionRetriever`, and a retriever of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rerank.adapters import rank_documents, search_documents
from rerank.errors import optional

with optional():
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field


class CalibratedCompressor(BaseDocumentCompressor):  # type: ignore[misc]
    """Orders documents by calibrated relevance, and adds the confidence to their metadata.

    `model` is from `rerank.load`. `min_relevance` leaves out documents that are likely to be wrong:
    0.0 keeps all, up to `top_n`. Texts, titles and `segment` are those of `rank_documents`.
    """

    model_config: ClassVar[Any] = {"extra": "forbid"}

    model: Any
    top_n: int = Field(5, ge=1)
    min_relevance: float = Field(0.0, ge=0, le=1)
    segment: str = ""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The best documents, best first; the input documents are not changed."""
        given = [(d.page_content, d.metadata) for d in documents]
        how: Any = {"min_relevance": self.min_relevance, "segment": self.segment}
        ranked = rank_documents(self.model, query, given, count=self.top_n, **how)
        return [
            documents[place].model_copy(update={"metadata": {**documents[place].metadata, **added}})
            for place, added in ranked
        ]


class CalibratedRetriever(BaseRetriever):  # type: ignore[misc]
    """Searches with a model of `rerank.load`; the documents have the confidence in their metadata.
    `where` is a filter: see `rerank.filters`. The rest is as in `CalibratedCompressor`.
    """

    model_config: ClassVar[Any] = {"extra": "forbid", "arbitrary_types_allowed": True}

    model: Any
    top_n: int = Field(5, ge=1)
    min_relevance: float = Field(0.0, ge=0, le=1)
    segment: str = ""
    where: Mapping[str, Any] | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        how: Any = {"min_relevance": self.min_relevance, "segment": self.segment}
        found = search_documents(self.model, query, count=self.top_n, where=self.where, **how)
        return [Document(page_content=p.text, metadata=added, id=p.doc_id) for p, added in found]

"""A document compressor for LangChain: pass it to `ContextualCompressionRetriever`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rerank.adapters.metadata import rank_documents
from rerank.errors import optional

with optional():
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import Field


class CalibratedCompressor(BaseDocumentCompressor):  # type: ignore[misc]
    """Orders documents by calibrated relevance, and adds the confidence to their metadata.

    `model` is from `rerank.load`. `min_relevance` leaves out documents that are likely to be wrong:
    0.0 keeps all, up to `top_n`. Documents without a text are left out. `segment` is that of all
    queries, if the model has segments.

    The model reads a title before the text, if the metadata has one under `title` or
    `document_title`.
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
        ranked = rank_documents(
            self.model,
            query,
            [(d.page_content, d.metadata) for d in documents],
            count=self.top_n,
            min_relevance=self.min_relevance,
            segment=self.segment,
        )
        return [
            documents[place].model_copy(update={"metadata": {**documents[place].metadata, **added}})
            for place, added in ranked
        ]

"""A document compressor for LangChain: pass it to `ContextualCompressionRetriever`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerank.adapters.metadata import document_metadata, with_words
from rerank.errors import optional

with optional():
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document


class CalibratedCompressor(BaseDocumentCompressor):  # type: ignore[misc]
    """Orders documents by calibrated relevance, and adds the confidence to their metadata.

    `model` is from `rerank.load`. `min_relevance` leaves out documents that are likely to be wrong:
    0.0 keeps all, up to `top_n`.
    """

    model: Any
    top_n: int = 5
    min_relevance: float = 0.0

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The best documents, best first, without empty ones; the input ones are not changed."""
        documents = [documents[row] for row in with_words([d.page_content for d in documents])]
        found = self.model.rerank(query, [d.page_content for d in documents])
        return [
            documents[p.row].model_copy(
                update={"metadata": {**documents[p.row].metadata, **document_metadata(found, p)}}
            )
            for p in found.first(self.top_n)
            if p.relevance >= self.min_relevance
        ]

"""A node postprocessor for LlamaIndex: pass it in a query engine's `node_postprocessors`."""

from __future__ import annotations

from typing import Any

from rerank.adapters.metadata import document_metadata, with_words
from rerank.errors import InputError, optional

with optional():
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle


class CalibratedPostprocessor(BaseNodePostprocessor):  # type: ignore[misc]
    """Orders nodes by calibrated relevance, which becomes their score.

    `model` is from `rerank.load`. `min_relevance` leaves out nodes that are likely to be wrong: 0.0
    keeps all, up to `top_n`.
    """

    model: Any
    top_n: int = 5
    min_relevance: float = 0.0

    @classmethod
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "CalibratedPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """The best nodes, best first, without empty ones; the input nodes are not changed.

        Raises:
            InputError: there is no query.
        """
        if query_bundle is None:
            raise InputError("a query is needed to order nodes by; pass query_bundle or query_str")
        texts = [n.node.get_content(metadata_mode=MetadataMode.NONE) for n in nodes]
        rows = with_words(texts)
        found = self.model.rerank(query_bundle.query_str, [texts[row] for row in rows])
        kept = []
        for passage in found.first(self.top_n):
            if passage.relevance >= self.min_relevance:
                node = nodes[rows[passage.row]].node.model_copy()
                node.metadata = {**node.metadata, **document_metadata(found, passage)}
                kept.append(NodeWithScore(node=node, score=passage.relevance))
        return kept

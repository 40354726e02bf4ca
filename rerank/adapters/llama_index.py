"""LlamaIndex: a node postprocessor for a query engine, and a retriever of a model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from rerank.adapters import rank_documents, search_documents
from rerank.errors import InputError, optional

with optional():
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
    from pydantic import Field


# the metadata added are for programs: not in the texts for language models and encoders
HIDDEN = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")


class CalibratedPostprocessor(BaseNodePostprocessor):  # type: ignore[misc]
    """Orders nodes by calibrated relevance, which becomes their score.

    `model` is from `rerank.load`. `min_relevance` leaves out nodes that are likely to be wrong: 0.0
    keeps all, up to `top_n`. Texts, titles and `segment` are those of `rank_documents`.
    """

    model_config: ClassVar[Any] = {"extra": "forbid"}

    model: Any
    top_n: int = Field(5, ge=1)
    min_relevance: float = Field(0.0, ge=0, le=1)
    segment: str = ""

    @classmethod
    def class_name(cls) -> str:
        """Its name in LlamaIndex."""
        return "CalibratedPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("a query is needed to order nodes by; pass query_bundle or query_str")
        given = [(n.node.get_content(MetadataMode.NONE), n.node.metadata) for n in nodes]
        how: Any = {"min_relevance": self.min_relevance, "segment": self.segment}
        asked = query_bundle.query_str
        ranked = rank_documents(self.model, asked, given, count=self.top_n, **how)
        best = []
        for place, added in ranked:
            node = nodes[place].node.model_copy()  # the input nodes are not changed
            node.metadata = {**node.metadata, **added}
            for hidden in HIDDEN:
                setattr(node, hidden, [*getattr(node, hidden), *added])
            best.append(NodeWithScore(node=node, score=added["relevance_score"]))
        return best


class CalibratedRetriever(BaseRetriever):  # type: ignore[misc]
    """Searches with a model of `rerank.load`; the nodes' metadata hold the confidence. `where` is a
    filter: see `rerank.filters`. The rest is as in `CalibratedPostprocessor`.
    """

    def __init__(
        self,
        model: Any,
        *,
        top_n: int = 5,
        min_relevance: float = 0.0,
        segment: str = "",
        where: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        how: Any = {"min_relevance": min_relevance, "segment": segment, "where": where}
        self._search: Any = partial(search_documents, model, count=top_n, **how)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        best = []
        for p, added in self._search(query_bundle.query_str):
            hidden = {key: list(added) for key in HIDDEN}
            node = TextNode(id_=p.doc_id, text=p.text, metadata=added, **hidden)
            best.append(NodeWithScore(node=node, score=p.relevance))
        return best

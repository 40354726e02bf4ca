"""Haystack: a ranker with the inputs of Haystack's own rankers, and a retriever of a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rerank.adapters import check_settings, rank_documents, search_documents
from rerank.assessment.model import load
from rerank.errors import optional

with optional():
    from haystack import Document, component, default_from_dict, default_to_dict


@component  # type: ignore[misc, untyped-decorator]
class CalibratedRanker:
    """Orders documents by calibrated relevance, which becomes their score.

    `model` is from `rerank.load`, or what `rerank.load` takes: a folder or a URI of MLflow, which
    is loaded before the first run. `min_relevance` leaves out documents that are likely to be
    wrong: 0.0 keeps all, up to `top_k`. Texts, titles (in `meta`), `segment`: `rank_documents`.

    A saved pipeline holds where the model is, and not the model. Give a model of MLflow as its URI:
    the folder that `rerank.load` copies it to is removed with the model.
    """

    def __init__(
        self, model: Any, *, top_k: int = 10, min_relevance: float = 0.0, segment: str = ""
    ) -> None:
        check_settings(top_k, min_relevance)
        self.model = model
        self.top_k = top_k
        self.min_relevance = min_relevance
        self.segment = segment
        self._loaded = None if isinstance(model, (str, Path)) else model

    def warm_up(self) -> None:
        """Load the model, unless it is loaded; raises what `rerank.load` does."""
        if self._loaded is None:
            self._loaded = load(self.model)

    def to_dict(self) -> dict[str, Any]:
        """The settings and where the model is, for a saved pipeline."""
        place = self.model if isinstance(self.model, (str, Path)) else self.model.folder
        how = {"top_k": self.top_k, "min_relevance": self.min_relevance, "segment": self.segment}
        data: dict[str, Any] = default_to_dict(self, model=str(place), **how)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CalibratedRanker:
        """The ranker that `to_dict` described; its model is loaded before the first run."""
        ranker: CalibratedRanker = default_from_dict(cls, data)
        return ranker

    def _how(self, top_k: int | None) -> dict[str, Any]:
        count = self.top_k if top_k is None else top_k
        return {"count": count, "min_relevance": self.min_relevance, "segment": self.segment}

    @component.output_types(documents=list[Document])  # type: ignore[misc, untyped-decorator]
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best documents, best first; the input documents are not changed."""
        self.warm_up()
        given = [(d.content or "", d.meta) for d in documents]
        ranked = rank_documents(self._loaded, query, given, **self._how(top_k))
        best = [
            replace(documents[i], score=added["relevance_score"], meta=documents[i].meta | added)
            for i, added in ranked
        ]
        return {"documents": best}


@component  # type: ignore[misc, untyped-decorator]
class CalibratedRetriever(CalibratedRanker):
    """Searches with a model; the documents' `meta` holds the confidence. `filters` are conditions
    of `rerank.filters`, not Haystack's own. The rest is as in `CalibratedRanker`.
    """

    @component.output_types(documents=list[Document])  # type: ignore[misc, untyped-decorator]
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """The best documents, best first."""
        self.warm_up()
        found = search_documents(self._loaded, query, where=filters, **self._how(top_k))
        best = [Document(id=p.doc_id, content=p.text, meta=d, score=p.relevance) for p, d in found]
        return {"documents": best}

"""The adapters inside the real frameworks: each gives the model's order and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from assessments import make_assessment

from rerank.adapters import rank_documents
from rerank.errors import InputError
from rerank.types import OWN_STAGES, Assessment, Passage

MISSING = "is not installed; the extra of its name brings it"


QUERY = "What is the median?"
TEXTS = ["a mean", "the median", "a mode"]
EMPTY = ["", " \n"]  # such as images have; they are left out


class Model:
    """Says of the three texts, whatever their order, which is likely to be right."""

    folder = Path("work/model")
    given: Sequence[Passage] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    source = SimpleNamespace(kind=OWN_STAGES)

    def of_segment(self, segment: str) -> dict[str, str]:
        """The segments are kinds."""
        return {"kind": segment} if segment else {}

    def rerank(
        self, text: str, passages: Sequence[Passage], *, metadata: Mapping[str, str]
    ) -> Assessment:
        """The likeliest first."""
        assert text == QUERY
        self.given, self.metadata = passages, metadata
        texts = [passage.text for passage in passages]
        likely = {"the median": 0.8, "a mode": 0.2, "a mean": 0.1}
        order = sorted(range(len(texts)), key=lambda i: -likely[texts[i]])
        found = make_assessment(
            texts=[texts[i] for i in order], relevance=[likely[texts[i]] for i in order]
        )
        stage = replace(found.ranking.first_stage, rows=np.array(order))
        candidates = replace(found.ranking.candidates, first_stage=stage)
        ranking = replace(found.ranking, candidates=candidates)
        return replace(found, ranking=ranking, confidence=0.8)


def ranked(
    documents: Sequence[tuple[str, Mapping[str, Any]]],
    model: Any = None,
    count: int = 5,
    min_relevance: float = 0.0,
) -> list[tuple[int, dict[str, Any]]]:
    """The ranked documents; the stub model unless another is given."""
    given = model or Model()
    return rank_documents(given, QUERY, documents, count=count, min_relevance=min_relevance)


BEST = {
    **{"relevance_score": 0.8, "confidence": 0.8, "level": "MEDIUM"},
    **{"accepted": True, "calibrated": True},
}


def test_langchain() -> None:
    """A document compressor, as `ContextualCompressionRetriever` calls it."""
    documents = pytest.importorskip("langchain_core.documents", reason=f"langchain-core {MISSING}")
    from rerank.adapters.langchain import CalibratedCompressor

    given = [
        documents.Document(page_content=t, metadata={"n": i})
        for i, t in enumerate(EMPTY + TEXTS, -2)
    ]
    found = CalibratedCompressor(model=Model(), top_n=2).compress_documents(given, QUERY)
    assert [d.metadata["n"] for d in found] == [1, 2]
    assert found[0].metadata == {"n": 1, **BEST}
    assert all(set(d.metadata) == {"n"} for d in given)
    of_faq = CalibratedCompressor(model=Model(), segment="faq")
    assert of_faq.compress_documents(given, QUERY)
    assert of_faq.model.metadata == {"kind": "faq"}
    least = CalibratedCompressor(model=Model(), min_relevance=1.0)
    assert not least.compress_documents(given, QUERY)
    assert not least.compress_documents(given[:2], QUERY)


def test_llama_index() -> None:
    """A node postprocessor, called as a query engine calls it."""
    schema = pytest.importorskip("llama_index.core.schema", reason=f"llama-index-core {MISSING}")
    from rerank.adapters.llama_index import CalibratedPostprocessor

    given = [
        schema.NodeWithScore(node=schema.TextNode(text=t, metadata={"n": i}), score=0.0)
        for i, t in enumerate(EMPTY + TEXTS, -2)
    ]
    made = CalibratedPostprocessor(model=Model(), top_n=2, segment="faq")
    assert not made.postprocess_nodes(given[:2], query_str=QUERY)
    found = made.postprocess_nodes(given, query_str=QUERY)
    assert [n.node.metadata["n"] for n in found] == [1, 2]
    assert made.model.metadata == {"kind": "faq"}
    assert [n.score for n in found] == [0.8, 0.2]
    assert found[0].node.metadata == {"n": 1, **BEST}
    assert all(set(n.node.metadata) == {"n"} for n in given)
    for reader in (schema.MetadataMode.LLM, schema.MetadataMode.EMBED):
        assert found[0].node.get_content(reader) == given[3].node.get_content(reader)
    assert not given[3].node.excluded_llm_metadata_keys
    with pytest.raises(InputError, match="a query is needed"):
        made.postprocess_nodes(given)
    with pytest.raises(ValueError, match="top_k"):
        CalibratedPostprocessor(model=Model(), top_k=2)  # Haystack's name


def test_haystack() -> None:
    """A ranker in a pipeline of its own."""
    haystack = pytest.importorskip("haystack", reason=f"haystack-ai {MISSING}")
    from rerank.adapters.haystack import CalibratedRanker

    given = [haystack.Document(content=t, meta={"n": i}) for i, t in enumerate(EMPTY + TEXTS, -2)]
    pipeline = haystack.Pipeline()
    pipeline.add_component("ranker", CalibratedRanker(Model()))
    found = pipeline.run({"ranker": {"query": QUERY, "documents": given, "top_k": 2}})
    ranked = found["ranker"]["documents"]
    assert [d.meta["n"] for d in ranked] == [1, 2]
    assert [d.score for d in ranked] == [0.8, 0.2]
    assert ranked[0].meta == {"n": 1, **BEST}
    assert all(set(d.meta) == {"n"} for d in given)


@pytest.mark.parametrize("loaded", [True, False], ids=["a loaded model", "its folder"])
def test_a_haystack_pipeline_is_saved_with_the_place_of_its_model(
    loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text holds the folder; the pipeline read from it loads the model before it runs."""
    haystack = pytest.importorskip("haystack", reason=f"haystack-ai {MISSING}")
    from rerank.adapters import haystack as adapter

    places: list[str] = []
    monkeypatch.setattr(adapter, "load", lambda place: places.append(place) or Model())
    ranker = adapter.CalibratedRanker(
        Model() if loaded else Path("work/model"), top_k=3, min_relevance=0.5, segment="faq"
    )
    pipeline = haystack.Pipeline()
    pipeline.add_component("ranker", ranker)
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["rerank"])
    assert again.get_component("ranker").to_dict()["init_parameters"] == {
        **{"model": "work/model", "top_k": 3, "min_relevance": 0.5, "segment": "faq"}
    }
    assert not places
    given = [haystack.Document(content=text) for text in TEXTS]
    for _ in range(2):
        found = again.run({"ranker": {"query": QUERY, "documents": given}})
        assert [d.content for d in found["ranker"]["documents"]] == ["the median"]
    assert again.get_component("ranker")._loaded.metadata == {"kind": "faq"}
    assert places == ["work/model"]


def test_the_model_sees_the_metadata() -> None:
    """A model with features of metadata needs them; without them it silently assumes the usual."""
    model = Model()
    ranked([("a mean", {"source_type": "government"}), ("the median", {})], model)
    assert [p.metadata for p in model.given] == [{"source_type": "government"}, {}]


@pytest.mark.parametrize(
    ("metadata", "title"),
    [
        ({"title": "Statistics"}, "Statistics"),
        ({"document_title": "Statistics"}, "Statistics"),
        ({"title": " ", "document_title": "Statistics"}, "Statistics"),
        ({"title": None}, ""),
        ({"title": 5}, ""),
        ({}, ""),
    ],
)
def test_the_model_reads_the_title(metadata: dict[str, Any], title: str) -> None:
    """Where the metadata has one; anything else that is not text is none."""
    model = Model()
    ranked([("a mean", metadata)], model)
    (passage,) = model.given
    assert (passage.title, passage.text) == (title, "a mean")


def test_documents_without_a_text_are_left_out() -> None:
    """An image or an empty chunk does not make the whole question fail."""
    documents: list[tuple[str, dict[str, Any]]] = [("", {}), ("a mean", {}), (" ", {})]
    assert [place for place, _ in ranked([*documents, ("the median", {})])] == [3, 1]


@pytest.mark.parametrize("count", [0, -1, "5", True, 2.0])
def test_a_count_that_is_none_is_refused(count: Any) -> None:
    """A count of -1 would leave out the last document."""
    with pytest.raises(InputError, match=f"a whole number from 1 up, got {count!r}"):
        ranked([("a mean", {})], count=count)


@pytest.mark.parametrize("relevance", [70, -0.1, "0.5", math.nan])
def test_a_relevance_that_is_no_probability_is_refused(relevance: Any) -> None:
    """With 70 instead of 0.7 an application would never get a document."""
    with pytest.raises(InputError, match=f"from 0 to 1, got {relevance!r}"):
        ranked([("a mean", {})], min_relevance=relevance)


def test_a_path_is_no_model() -> None:
    """The message says what to pass instead."""
    with pytest.raises(InputError, match=r"model of `rerank\.load`, got 'work/model'"):
        ranked([("a mean", {})], "work/model")


def test_retrievers(run: Any) -> None:
    """Each framework's retriever gives the documents, order and numbers of a search."""
    from rerank.adapters import haystack, langchain, llama_index
    from rerank.assessment.model import CalibratedReranker

    model = CalibratedReranker.load(run.folder)
    found = model.search(QUERY)
    expected = [(p.doc_id, p.text, p.relevance) for p in found.first(3)]
    documents = langchain.CalibratedRetriever(model=model, top_n=3).invoke(QUERY)
    assert [(d.id, d.page_content, d.metadata["relevance_score"]) for d in documents] == expected
    assert documents[0].metadata["confidence"] == found.confidence
    nodes = llama_index.CalibratedRetriever(model, top_n=3).retrieve(QUERY)
    assert [(n.node.node_id, n.node.text, n.score) for n in nodes] == expected
    retriever = haystack.CalibratedRetriever(str(run.folder), top_k=3)
    again = haystack.CalibratedRetriever.from_dict(retriever.to_dict())
    (found_there,) = again.run(QUERY).values()
    assert [(d.id, d.content, d.score) for d in found_there] == expected
    with pytest.raises(InputError, match="no passage has the metadata"):
        langchain.CalibratedRetriever(model=model, where={"none": 1}).invoke(QUERY)

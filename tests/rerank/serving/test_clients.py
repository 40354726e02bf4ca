"""Clients that others wrote for hosted rerank APIs, pointed at this server without a change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.types import Assessment

os.environ["LANGSMITH_TRACING"] = "false"

QUERY = "median along an axis while ignoring NaNs"


@pytest.fixture(scope="module")
def url(run: Any) -> Iterator[str]:
    """The address of a server that asks for a key, as hosted ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RERANK_API_KEYS", "another-key,a-key-of-these-tests")
        with serving(run.folder) as started:
            yield started.url


@pytest.fixture(scope="module")
def documents(texts: list[str]) -> list[str]:
    """What the clients bring."""
    return texts[:5]


@pytest.fixture(scope="module")
def expected(model: CalibratedReranker, documents: list[str]) -> Assessment:
    """What the model says in this process."""
    return model.rerank(QUERY, documents)


def pairs(found: Assessment, count: int) -> list[tuple[int, float]]:
    """Places in the request and probabilities, best first."""
    return [(p.row, p.relevance) for p in found.first(count)]


def test_cohere(url: str, documents: list[str], expected: Assessment) -> None:
    """Cohere's own clients, of both versions of its API, read the answer, its extras included."""
    import cohere

    for make in (cohere.Client, cohere.ClientV2):
        client = make("a-key-of-these-tests", base_url=url)
        found = client.rerank(model="rerank-v3.5", query=QUERY, documents=documents, top_n=3)
        assert [(r.index, r.relevance_score) for r in found.results] == pairs(expected, 3)
        assert found.id
        assert found.meta.api_version.version == "2"
        assert found.confidence == expected.confidence
    first = cohere.Client("a-key-of-these-tests", base_url=url).rerank(
        query=QUERY, documents=[{"text": d} for d in documents], return_documents=True
    )
    assert first.results[0].document.text == documents[first.results[0].index]


def test_cohere_hears_why(url: str, documents: list[str]) -> None:
    """A refusal is the client's own exception, and carries the sentence."""
    import cohere

    with pytest.raises(cohere.errors.UnauthorizedError, match="Bearer KEY"):
        cohere.ClientV2("no-key", base_url=url).rerank(model="m", query=QUERY, documents=documents)
    with pytest.raises(cohere.errors.UnprocessableEntityError, match="empty"):
        cohere.ClientV2("another-key", base_url=url).rerank(
            model="m", query=" ", documents=documents
        )


def test_xinference(url: str, documents: list[str], expected: Assessment) -> None:
    """RAGFlow asks Xinference with booleans as texts, and with a field of no other API."""
    sent = {"return_documents": "true", "return_len": "true", "model": "bge-reranker"}
    found = httpx.post(
        f"{url}/v1/rerank",
        json={**sent, "query": QUERY, "documents": documents},
        headers={"authorization": "Bearer another-key"},
        timeout=600,
    ).json()
    assert [(r["index"], r["relevance_score"]) for r in found["results"]] == pairs(expected, 5)
    assert [r["document"]["text"] for r in found["results"]] == [
        documents[i] for i, _ in pairs(expected, 5)
    ]


def test_langchain(url: str, documents: list[str], expected: Assessment) -> None:
    """LangChain's CohereRerank compresses documents by our probabilities."""
    from langchain_cohere import CohereRerank
    from langchain_core.documents import Document

    reranker = CohereRerank(
        model="rerank-v3.5", top_n=2, base_url=url, cohere_api_key="a-key-of-these-tests"
    )
    found = reranker.compress_documents([Document(page_content=d) for d in documents], QUERY)
    assert [(d.page_content, d.metadata["relevance_score"]) for d in found] == [
        (documents[i], p) for i, p in pairs(expected, 2)
    ]


def test_llama_index(url: str, documents: list[str], expected: Assessment) -> None:
    """LlamaIndex' JinaRerank scores nodes by our probabilities, and shows a refusal's sentence."""
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    nodes = [NodeWithScore(node=TextNode(text=d)) for d in documents]
    reranker = JinaRerank(top_n=3, base_url=f"{url}/v1", api_key="a-key-of-these-tests")
    found = reranker.postprocess_nodes(nodes, QueryBundle(QUERY))
    assert [(n.node.text, n.score) for n in found] == [
        (documents[i], p) for i, p in pairs(expected, 3)
    ]
    with pytest.raises(RuntimeError, match="empty"):
        reranker.postprocess_nodes(nodes, QueryBundle(" "))


def test_tei(url: str, documents: list[str], expected: Assessment) -> None:
    """Clients of TEI name the documents `texts`, and read a bare list, best first."""
    asked = {"query": QUERY, "texts": documents, "raw_scores": False, "truncate": True}
    headers = {"Authorization": "Bearer a-key-of-these-tests"}
    for return_text in (False, True):
        answer = httpx.post(
            f"{url}/rerank",
            json={**asked, "return_text": return_text},
            headers=headers,
            timeout=600,
        )
        best = answer.json()
        assert [(one["index"], one["score"]) for one in best] == pairs(expected, 5)
        texts = [documents[one["index"]] if return_text else None for one in best]
        assert [one.get("text") for one in best] == texts

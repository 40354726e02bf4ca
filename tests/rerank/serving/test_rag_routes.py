"""The routes that act on an assessment give what Python gives."""

from __future__ import annotations

import httpx
import pytest
from http_checks import assert_refused

from rerank.assessment.model import CalibratedReranker
from rerank.rag.adaptive import search
from rerank.rag.answer.model_answers import answer
from rerank.rag.retrieval_assessment import assess_with
from rerank.types import Query


def asked(client: httpx.Client, route: str, **body: object) -> dict[str, object]:
    """The answer, without what names it."""
    found = client.post(route, json=body)
    assert found.status_code == 200, found.text
    told: dict[str, object] = found.json()
    assert told.pop("id") == found.headers["x-request-id"]
    assert told.pop("model")
    return told


def test_adaptive_retrieval(
    client: httpx.Client, model: CalibratedReranker, queries: list[str]
) -> None:
    """With the settings of the request."""
    told = asked(client, "/v1/retrieve", query=queries[0], min_k=2, max_k=3)
    assert told == search(model, queries[0], min_k=2, max_k=3).to_dict()


def test_the_assessment_of_a_retrieval(
    client: httpx.Client, model: CalibratedReranker, queries: list[str]
) -> None:
    """Signals and recommendations."""
    told = asked(client, "/v1/assess_retrieval", query=queries[0])
    assert told == assess_with(model, model.search(queries[0])).to_dict()


def test_an_answer_in_the_words_of_its_sources(
    client: httpx.Client, model: CalibratedReranker, queries: list[str]
) -> None:
    """The record of the command line."""
    told = asked(client, "/v1/answer", query=queries[0])
    (expected,) = answer(model, [Query(queries[0])])
    assert told.pop("query_id")
    assert told == {k: v for k, v in expected.to_dict().items() if k != "query_id"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"query": " "}, "empty"),
        ({"query": "x", "min_k": 5, "max_k": 2}, "min_k"),
        ({"query": "x", "max_k": 99}, "max_k"),
        ({"query": "x", "maxk": 3}, "did you mean 'max_k'"),
    ],
)
def test_bad_input_is_refused(client: httpx.Client, body: dict[str, object], words: str) -> None:
    """With 422 and a sentence."""
    assert_refused(client.post("/v1/retrieve", json=body), 422, words)

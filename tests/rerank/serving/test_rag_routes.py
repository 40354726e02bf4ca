"""The routes that act on an assessment give what Python gives."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from assessments import make_assessment
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from http_checks import assert_refused

from rerank.advice.adaptive import search
from rerank.advice.explanation import explain
from rerank.advice.strategies import Strategy
from rerank.assessment.model import CalibratedReranker
from rerank.rag import routes as rag_routes
from rerank.rag.answer import model_answers
from rerank.rag.answer.answerers import Generated
from rerank.rag.answer.model_answers import answer
from rerank.serving.refusals import Refusal
from rerank.serving.request_assessor import AssessedRequest
from rerank.types import Assessment, Query


def assessed_of(found: Assessment, model: Any, *, left: float = 60) -> AssessedRequest:
    """What the routes get of a request that must be answered in `left` seconds."""
    served: Any = SimpleNamespace(model=model, kept={}, version="1")
    return AssessedRequest(found, served, "1", asyncio.get_running_loop().time() + left)


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
    assert told == search(model, queries[0], Strategy(min_k=2, max_k=3)).to_dict()


def test_the_assessment_of_a_retrieval(
    client: httpx.Client, model: CalibratedReranker, queries: list[str]
) -> None:
    """Signals and recommendations."""
    told = asked(client, "/v1/explain", query=queries[0])
    assert told == explain(model, model.search(queries[0])).to_dict()


def test_an_answer_in_the_words_of_its_sources(
    client: httpx.Client, model: CalibratedReranker, queries: list[str]
) -> None:
    """The record of the command line."""
    told = asked(client, "/v1/answer", query=queries[0])
    (expected,) = answer(model, [Query(queries[0])])
    assert told.pop("query_id")
    assert told == {k: v for k, v in expected.to_dict().items() if k != "query_id"}


def test_the_judge_is_asked_where_words_cannot_decide(
    model: CalibratedReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the command line: about a sentence of one word."""
    found = make_assessment(texts=["The median is the middle value."], sufficiency=[0.8])
    judged: list[str] = []

    async def assessed(*_: object) -> AssessedRequest:
        return assessed_of(found, model)

    def judge(claim: str, _: object) -> float:
        judged.append(claim)
        return 1.0

    written = SimpleNamespace(generate=lambda *_, **__: Generated("Median [S1].", 0))
    monkeypatch.setattr(model_answers, "cross_encoder_judge", lambda _: judge)
    monkeypatch.setattr(rag_routes, "extractive", lambda _: written)
    app = FastAPI()
    app.include_router(rag_routes.rag_routes(assessed, seconds=60))
    told = TestClient(app).post("/v1/answer", json={"query": "median"}).json()
    assert (told["answer"], judged) == ("Median [S1].", ["Median."])


@pytest.mark.parametrize(
    ("gone", "status", "words"),
    [(False, 504, "the answer was not ready within 30 seconds"), (True, 408, "went away")],
)
def test_nobody_waits_for_an_answer_for_ever(
    monkeypatch: pytest.MonkeyPatch, gone: bool, status: int, words: str
) -> None:
    """It ends at the time limit of the whole request, and where the client leaves."""
    over = threading.Event()
    monkeypatch.setattr(rag_routes, "answer_assessed", lambda *_: over.wait(600))
    monkeypatch.setattr(rag_routes, "extractive", lambda _: None)

    async def receive() -> dict[str, str]:
        if not gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def ask() -> None:
        left = 60 if gone else 0.05
        done = assessed_of(make_assessment(texts=["a"]), None, left=left)
        try:
            await rag_routes._answered(Request({"type": "http"}, receive), done, 30)
        finally:
            over.set()

    with pytest.raises(Refusal, match=words) as refused:
        asyncio.run(ask())
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"query": " "}, "empty"),
        ({"query": "x", "min_k": 5, "max_k": 2}, "min_k"),
        ({"query": "x", "max_k": 99}, "max_k"),
        ({"query": "x", "min_k": "five"}, "min_k should be a whole number, got text"),
        ({"query": "x", "maxk": 3}, "did you mean 'max_k'"),
        ({"query": "x", "max_k": 3, "guaranteed": True}, "remove max_k"),
    ],
)
def test_bad_input_is_refused(client: httpx.Client, body: dict[str, object], words: str) -> None:
    """With 422 and a sentence."""
    assert_refused(client.post("/v1/retrieve", json=body), 422, words)

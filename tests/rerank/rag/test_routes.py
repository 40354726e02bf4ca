"""The routes that act on an assessment give what Python gives."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from assessments import make_assessment
from fastapi import FastAPI
from fastapi.testclient import TestClient
from http_checks import assert_refused
from llm_endpoint import endpoint as answers_of_llm
from llm_endpoint import says, status
from server import serving

from rerank.advice.adaptive import search
from rerank.advice.explanation import explain
from rerank.advice.settings import NO_ANSWER, AnswerConfig, LanguageModelConfig, Strategy
from rerank.assessment.model import CalibratedReranker
from rerank.errors import InputError
from rerank.rag import routes as rag_routes
from rerank.rag.answer import answering
from rerank.rag.answer.answerers import Generated
from rerank.rag.answer.answering import answer
from rerank.serving.middleware import while_connected
from rerank.serving.parts import AssessedRequest
from rerank.serving.refusals import Refusal
from rerank.types import Assessment, Query


def assessed_of(found: Assessment, model: Any, *, left: float = 60) -> AssessedRequest:
    """What the routes get of a request that must be answered in `left` seconds."""
    served: Any = SimpleNamespace(model=model, kept={}, version="1")
    until = asyncio.get_running_loop().time() + left
    return AssessedRequest(found, served, "1", until, 0, 0)


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
    monkeypatch.setattr(answering, "cross_encoder_judge", lambda _: judge)
    monkeypatch.setattr(answering, "ExtractiveAnswerer", lambda _: written)
    app = FastAPI()
    app.include_router(rag_routes.rag_routes(assessed, rag_routes.Writer(AnswerConfig(), 60)))
    told = TestClient(app).post("/v1/answer", json={"query": "median"}).json()
    assert (told["answer"], judged) == ("Median [S1].", ["Median."])


def test_a_language_model_writes_the_answers(
    run: Any, model: CalibratedReranker, queries: list[str], tmp_path: Path
) -> None:
    """By the prompt of a file and our rules, checked as always; the stream begins without it.

    Where the gate refuses, it is not asked; where it fails, its address is told to nobody.
    """
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Answer like a pirate.\n{context}\nBe brief.")
    question = next(q for q in queries if model.search(q).verdict == "SUFFICIENT")
    top = model.search(question).top
    assert top
    quoted = f"{top.text.splitlines()[0].rstrip('.')} [S1]. Penguins cannot fly [S1]."
    own = "Ask a colleague."
    with answers_of_llm(*[says(quoted)] * 4, status(400)) as endpoint:
        named = LanguageModelConfig(
            endpoint.url, "m", llm_prompt=str(prompt), no_answer=own, llm_retries=0
        )
        config = AnswerConfig(language_model=named)
        given = {"rag": config}
        with serving(run.folder, given=given) as started:
            post = partial(httpx.post, f"{started.url}/v1/ask", timeout=600)
            lines = post(json={"query": question, "stream": True}).text.splitlines()
            first, last = map(json.loads, lines)
            assert "answer" not in first
            assert first["passages"][0]["doc_id"] == top.doc_id
            said = last["answer"]
            assert said["model_calls"] == 2  # the second, because a sentence had no support
            assert "Penguins" not in said["answer"]
            (system, user) = endpoint.requests[0]["messages"]
            assert system["content"].startswith("Answer like a pirate.")
            assert top.doc_id in system["content"] or top.text[:40] in system["content"]
            assert own in system["content"]
            assert user["content"] == question
            whole = post(json={"query": question}).json()
            assert whole["assessment"] == first["assessment"]
            answered = httpx.post(
                f"{started.url}/v1/answer", json={"query": question}, timeout=600
            ).json()
            assert answered["error"] == "the language model gave no answer; try again later"
            nothing = post(json={"query": "zzzz qqqq"}).json()["answer"]
            assert (nothing["refused"], nothing["answer"]) == (True, own)
    assert NO_ANSWER not in json.dumps(endpoint.requests)


@pytest.mark.parametrize(
    ("text", "words"), [("no place for the sources", "expected {context}"), (None, "No such file")]
)
def test_a_prompt_that_cannot_be_used(tmp_path: Path, text: str | None, words: str) -> None:
    """It is refused before anything starts."""
    file = tmp_path / "prompt.txt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=words):
        LanguageModelConfig("http://localhost/v1", "m", llm_prompt=str(file))


@pytest.mark.parametrize(
    ("gone", "code", "words"),
    [(False, 504, "the answer was not ready within 30 seconds"), (True, 408, "went away")],
)
def test_nobody_waits_for_an_answer_for_ever(
    monkeypatch: pytest.MonkeyPatch, gone: bool, code: int, words: str
) -> None:
    """It ends at the time limit of the whole request, and where the client leaves."""
    over = threading.Event()
    monkeypatch.setattr(rag_routes, "answer_assessed", lambda *_: over.wait(600))

    async def receive() -> dict[str, str]:
        if not gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def ask() -> None:
        left = 60 if gone else 0.05
        done = assessed_of(make_assessment(texts=["a"]), None, left=left)
        try:
            writer = rag_routes.Writer(AnswerConfig(), 30)
            await while_connected(receive, writer(done))
        finally:
            over.set()

    with pytest.raises(Refusal, match=words) as refused:
        asyncio.run(ask())
    assert refused.value.status == code


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

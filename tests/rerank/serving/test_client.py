"""`rerank.Client` against a real server: the numbers and the errors of the model itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server import serving

from rerank import AsyncClient, Client
from rerank.assessment.model import CalibratedReranker
from rerank.errors import FilterError, InputError, RetrieverError
from rerank.inference.remote.client import LARGEST
from rerank.types import Assessment, Passage, Query


@pytest.fixture(scope="module")
def url(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal: Path = tmp_path_factory.mktemp("client") / "journal.db"
    with serving(run.folder, journal=f"sqlite:///{journal}") as started:
        yield started.url


def same(got: Assessment, expected: Assessment) -> None:
    """Every number and decision that the server sends is that of the model, to the bit."""
    for name in ("confidence", "sufficiency", "sufficiency_at", "level", "verdict", "accepted"):
        assert getattr(got, name) == getattr(expected, name)
    for name in ("certified", "context_certified", "reasons", "thresholds", "mode", "calibrated"):
        assert getattr(got, name) == getattr(expected, name)
    count = len(got.ranking)
    for one, other in zip(got.passages, expected.first(count), strict=True):
        assert (one.doc_id, one.title, one.text) == (other.doc_id, other.title, other.text)
        assert (one.relevance, one.metadata) == (other.relevance, other.metadata)


def test_a_client_answers_as_the_model(
    url: str, model: CalibratedReranker, queries: list[str]
) -> None:
    """Searches with the scores of each stage, and passages of the caller with their own ids."""
    with Client(url) as client:
        for text in queries[:3]:
            expected = model.search(text)
            got = client.search(text, top_n=5)
            same(got, expected)
            assert [(p.logit, p.bm25, p.dense) for p in got.passages] == [
                (p.logit, p.bm25, p.dense) for p in expected.first(5)
            ]
            passages = [Passage(p.doc_id, p.title, p.text, {"a": 1}) for p in expected.first(4)]
            same(client.rerank(text, passages), model.rerank(text, passages))
            assert client.answer(text)["confidence"] == expected.confidence
        client.feedback(got.ranking.query.query_id, right=True)
        assert client.rerank(queries[0], []).top is None


def test_an_asynchronous_client(url: str, model: CalibratedReranker, queries: list[str]) -> None:
    """Several questions at once, each with its own answer."""

    async def ask() -> list[Assessment]:
        async with AsyncClient(url) as client:
            return await asyncio.gather(*map(client.search, queries[:3]))

    for got, text in zip(asyncio.run(ask()), queries, strict=False):
        same(got, model.search(text))


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda c: c.search(" "), InputError),
        (lambda c: c.search("a", where={"none": 1}), InputError),
        (lambda c: c.search("a", where={"none": None}), FilterError),
        (lambda c: c.rerank("a", "text"), InputError),
        (lambda c: c.feedback("never given", right=True), InputError),
    ],
)
def test_refusals_are_errors_of_the_library(url: str, ask: Any, error: type[Exception]) -> None:
    """What the server refuses is the caller's fault."""
    with Client(url) as client, pytest.raises(error):
        ask(client)


def test_a_busy_server_is_asked_again() -> None:
    """As often as it says within a few tries; one that is not there is an error of the search."""
    answers = [429, 503, 200]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(answers.pop(0))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(b'{"message": "busy"}')

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        with Client(f"http://127.0.0.1:{http.server_port}") as client:
            with pytest.raises(RetrieverError, match="not as `rerank serve`"):
                client.search("a question")
            assert not answers
        http.shutdown()
        thread.join()
    with Client("http://127.0.0.1:9") as client, pytest.raises(RetrieverError, match="not answer"):
        client.search("a question")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b" " * (LARGEST + 1), "more than"),
        (b"[" * 200_000, "not as `rerank serve`"),
        (b'{"ranking": ["a"]}', "not as `rerank serve`"),
        (b'{"ranking": [{"doc_id": "a", "relevance": 1%s}]}' % (b"0" * 400), "not as"),
    ],
)
def test_a_server_of_another_kind_costs_a_bounded_answer(content: bytes, said: str) -> None:
    """Whatever it sends is an error of the library, and no more is read than an answer may have."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the client has left
                self.wfile.write(content)

    async def wait(url: str) -> None:
        async with AsyncClient(url) as client:
            await client.search("a question")

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{http.server_port}"
        with Client(url) as client, pytest.raises(RetrieverError, match=said):
            client.search("a question")
        with pytest.raises(RetrieverError, match=said):
            asyncio.run(wait(url))
        http.shutdown()
        thread.join()


def test_awaiting_a_model(model: CalibratedReranker, queries: list[str]) -> None:
    """The numbers are those of the plain call, to the bit; errors are raised in the same place."""

    async def ask() -> tuple[Assessment, Assessment]:
        with pytest.raises(InputError):
            await model.asearch(" ")
        return await model.asearch(queries[0]), await model.arerank(queries[0], ["a text", "b"])

    searched, reranked = asyncio.run(ask())
    same(searched, model.search(queries[0]))
    np.testing.assert_array_equal(searched.features, model.search(queries[0]).features)
    same(reranked, model.rerank(queries[0], ["a text", "b"]))


def test_a_cancelled_call_begins_no_new_query(
    model: CalibratedReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one in progress ends in its thread; the event loop does not wait for it."""
    begun, go, asked = threading.Event(), threading.Event(), list[str]()
    assess = model.assess

    def held(queries: Sequence[Query | str], **named: Any) -> list[Assessment]:
        asked.append(str(queries))
        begun.set()
        go.wait(600)
        return assess(queries, **named)

    monkeypatch.setattr(model, "assess", held)

    async def ask() -> None:
        task = asyncio.create_task(model.aassess(["a question", "another"]))
        await asyncio.to_thread(begun.wait, 600)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    asyncio.run(ask())
    assert len(asked) == 1


@pytest.mark.parametrize("metadata", [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}])
def test_what_cannot_be_sent(url: str, metadata: Any) -> None:
    """Refused in a sentence, by the client or by the server."""
    with Client(url) as client, pytest.raises(InputError):
        client.search("a question", metadata=metadata)


@pytest.mark.parametrize(
    ("address", "key"), [("localhost:8000", ""), ("http://a", "clé"), ("", "")]
)
def test_what_is_no_address_or_key(address: str, key: str) -> None:
    """Before anything is sent."""
    for kind in (Client, AsyncClient):
        with pytest.raises(InputError):
            kind(address, key=key)

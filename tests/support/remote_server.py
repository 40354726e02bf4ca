"""A small server of rerankers and encoders on this machine, which fails as it is told."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest

from rerank.inference.model_cache import cache_folder
from rerank.inference.remote import client

KEY = "sk-a-secret-4711"
Fault = Callable[["Handler", Any], Any]  # of the handler and the right answer: another, or None


def score_of(query: str, text: str) -> float:
    """Shared words, and a little of the text's own."""
    shared = len({*query.lower().split()} & {*text.lower().split()})
    return shared + zlib.crc32(text.encode()) % 997 / 9970


def vector_of(text: str) -> list[float]:
    """Counts of words by a hash."""
    counts = [0.01] * 64
    for word in text.lower().split():
        counts[zlib.crc32(word.encode()) % 64] += 1
    return counts


class Server:
    """Answers in the form `form`; `faults` are for the next requests, one each."""

    def __init__(self) -> None:
        self.form, self.model = "jina", "words-1"
        self.scale, self.offset, self.reads = 1.0, 0.0, 10**9  # characters of a text
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, Any]] = []  # path, key, body
        self.paid: list[tuple[str, Any]] = []  # path and body of those that were answered
        self.lock, self.ended = Lock(), Event()
        self.sent, self.left = 0, Event()  # bytes of an endless answer, and its client went away
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.owner = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def score(self, query: str, text: str) -> float:
        """What the model gives."""
        return self.scale * score_of(query, text[: self.reads]) + self.offset

    def answer(self, path: str, body: Any) -> Any:
        """The JSON of an answer; None if the form does not know the request."""
        if "questions" in body:
            return {"model": self.model, "answers": self.decisions(body), "usage": {}}
        if "inputs" in body:
            return [vector_of(text) for text in body["inputs"]]
        if "input" in body:
            rows = [{"index": i, "embedding": vector_of(t)} for i, t in enumerate(body["input"])]
            return {"model": self.model, "data": rows[::-1]}
        texts = body.get("texts" if self.form == "tei" else "documents")
        if texts is None:
            return None
        scores = [self.score(body["query"], text) for text in texts]
        name = "score" if self.form == "tei" else "relevance_score"
        best_first = sorted(enumerate(scores), key=lambda both: -both[1])
        rows = [{"index": i, name: score} for i, score in best_first]
        forms = {
            "jina": {"model": self.model, "results": rows},
            "cohere": {"id": "1", "results": rows},
            "voyage": {"object": "list", "data": rows, "model": self.model},
            "tei": rows,
        }
        return forms[self.form]

    def decisions(self, body: Any) -> Any:
        """The answers of a decision model: predicates in a list, one choice, or nouls by name."""
        asked = body["questions"]
        if self.form == "decisions":
            texts = [q["instructions"].partition("Passage: ")[2] for q in asked]
            chances = [self.score(body["input"], text) / 20 for text in texts]
            return [
                {"type": "predicate", "name": q["name"], "probability": p}
                for q, p in zip(asked, chances, strict=True)
            ][::-1]
        query = body["state"]["query"]
        if "best" in asked:
            scores = {i: self.score(query, text) for i, text in asked["best"]["criteria"].items()}
            shares = {i: score / sum(scores.values()) for i, score in scores.items()}
            return {"best": {"type": "choice", "choice": "p0", "probabilities": shares}}
        texts = {i: q["instructions"].partition("Passage: ")[2] for i, q in asked.items()}
        return {
            i: {"type": "noul", "noul": min(1.0, self.score(query, text) / 20)}
            for i, text in texts.items()
        }


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer, or do what the next fault does."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        owner: Server = self.server.owner  # type: ignore[attr-defined]
        with owner.lock:
            owner.requests.append((self.path, self.headers.get("authorization", ""), body))
            fault = owner.faults.pop(0) if owner.faults else None
        answer = owner.answer(self.path, body)
        if fault:
            answer = fault(self, answer)
        elif answer is None:
            self.send(422, {"error": "missing field"})
        if answer is not None:
            with owner.lock:
                owner.paid.append((self.path, body))
            self.send(200, answer)

    def send(self, status: int, content: Any, **headers: str) -> None:
        """Send JSON."""
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def status(number: int, said: Any = "sorry", **headers: str) -> Fault:
    """A fault: another status."""
    return lambda handler, _: handler.send(number, said, **headers)


def half(handler: Handler, answer: Any) -> None:
    """A fault: the connection ends in the middle of the answer."""
    data = json.dumps(answer).encode()
    handler.send_response(200)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.close()


def late(handler: Handler, answer: Any) -> None:
    """A fault: nothing is sent before the end of the test."""
    handler.server.owner.ended.wait(600)  # type: ignore[attr-defined]


def endless(piece: bytes, *, wait: float = 0.0, code: int = 200, **headers: str) -> Fault:
    """A fault: a body of this piece again and again, until the client has had enough."""

    def send(handler: Handler, _: Any) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        _repeat(handler, piece, wait)

    return send


def no_head(piece: bytes, *, wait: float = 0.0) -> Fault:
    """A fault: this piece again and again, and never the end of the headers."""
    return lambda handler, _: _repeat(handler, piece, wait)


def _repeat(handler: Handler, piece: bytes, wait: float) -> None:
    owner: Server = handler.server.owner  # type: ignore[attr-defined]
    handler.close_connection = True
    with suppress(OSError):
        while not owner.ended.wait(wait):
            handler.wfile.write(piece)
            owner.sent += len(piece)
    owner.left.set()


@contextmanager
def running_server(cache: Path) -> Iterator[Server]:
    """The server; a second try comes at once, and probes are kept in the folder `cache`.

    What has been exported by now is not exported again.
    """
    own = cache / "models"
    own.mkdir(mode=0o700, parents=True)
    for made in cache_folder().glob("[!.]*"):
        (own / made.name).symlink_to(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "FIRST_WAIT", 0.0)
        patch.setenv("RERANK_CACHE", str(cache))
        for name in ("RERANK_API_KEY", "RERANK_API_HOSTS"):
            patch.delenv(name, raising=False)
        client.METER.start(client.Budget())
        server = Server()
        Thread(target=server.http.serve_forever, daemon=True).start()
        yield server
        server.ended.set()
        server.http.shutdown()
        server.http.server_close()

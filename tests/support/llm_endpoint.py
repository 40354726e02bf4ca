"""An OpenAI-compatible endpoint on this machine, which answers as a test tells it, and counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

Behaviour = Callable[["Handler", dict[str, Any]], None]


@dataclass
class Endpoint:
    """A running endpoint: what it was sent, and what it does with the next requests, in turn.

    The last behaviour stands for all further requests.
    """

    behaviours: Sequence[Behaviour]
    requests: list[dict[str, Any]] = field(default_factory=list)
    closing: Event = field(default_factory=Event)
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Count it, and behave."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/v1/chat/completions"
        known = self.endpoint
        known.requests.append(body)
        known.behaviours[min(len(known.requests), len(known.behaviours)) - 1](self, body)

    def send(self, body: bytes, *, status: int = 200, **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def says(text: str, *, reason: str = "stop") -> Behaviour:
    """Answer with this text, in one piece or as a stream, as it is asked, and end for a reason."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        if body.get("stream"):
            _stream(handler, text, ended=reason)
            return
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        made = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        handler.send(json.dumps({**made, "choices": [choice]}).encode())

    return behave


def breaks_off(text: str) -> Behaviour:
    """Begin to stream this text, and close the connection before its end."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        _stream(handler, text, ended="")

    return behave


def _stream(handler: Handler, text: str, *, ended: str) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()
    handler.close_connection = True

    def event(delta: dict[str, str], reason: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        made = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        line = json.dumps({**made, "choices": [choice]})
        handler.wfile.write(f"data: {line}\n\n".encode())

    for word in text.split(" "):
        event({"content": f"{word} "}, None)
    if ended:
        event({}, ended)
        handler.wfile.write(b"data: [DONE]\n\n")


def status(code: int, **headers: str) -> Behaviour:
    """Refuse with a status."""
    return lambda handler, _: handler.send(b'{"error": {"message": "no"}}', status=code, **headers)


def sends(body: bytes, *, code: int = 200) -> Behaviour:
    """Answer with these bytes and a status."""
    return lambda handler, _: handler.send(body, status=code)


def stalls(handler: Handler, _: dict[str, Any]) -> None:
    """Send nothing until the endpoint is closed."""
    handler.endpoint.closing.wait()
    handler.close_connection = True


def endless(piece: bytes, *, wait: float = 0, code: int = 200, **headers: str) -> Behaviour:
    """Send this piece again and again, and never an end."""

    def behave(handler: Handler, _: dict[str, Any]) -> None:
        handler.send_response(code)
        for name, value in {"content-type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("connection", "close")
        handler.end_headers()
        _repeat(handler, piece, wait)

    return behave


def drips(piece: bytes) -> Behaviour:
    """Send each piece in time, and never an end."""
    return endless(piece, wait=0.05)


def no_head(piece: bytes) -> Behaviour:
    """Send each piece in time, and never the end of the headers."""
    return lambda handler, _: _repeat(handler, piece, 0.05)


def _repeat(handler: Handler, piece: bytes, wait: float) -> None:
    handler.close_connection = True
    with suppress(OSError):  # the client has had enough
        while not handler.endpoint.closing.wait(wait):
            handler.wfile.write(piece)


@contextmanager
def endpoint(*behaviours: Behaviour) -> Iterator[Endpoint]:
    """A running endpoint."""
    made = Endpoint(behaviours)
    handler = type("Bound", (Handler,), {"endpoint": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        made.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()

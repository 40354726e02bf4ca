"""ASGI middleware of every request: log and count it, then check key, size, time and shape."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from email.message import Message as Header
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerank.serving.refusals import PRIVATE, Refusal
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics, event

OPEN = ("/healthz", "/readyz", "/openapi.json")  # need no key, as pages: they contain no data
UNQUEUED = ("/v1/feedback", "/v1/label")  # wait for a database, or for a file and one search
LOCAL = ("localhost", "127.0.0.1", "::1")
READ = 16  # times max_body: limit of all bodies that are being read, together
Answer = TypeVar("Answer")
_ID = re.compile(rb"[A-Za-z0-9._=:/+-]{1,64}")  # ids are never used as file names


@dataclass(eq=False)
class RequestLog:
    """The outermost layer: gives each request an id, an answer in JSON, a log line and a count.

    It answers what the layers below refuse; routes add to the line by `request.state.log`.
    """

    app: ASGIApp
    metrics: Metrics
    paths: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode() if _ID.fullmatch(given) else uuid.uuid4().hex
        log: dict[str, Any] = {}
        scope.setdefault("state", {}).update({"request_id": request_id, "log": log})

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                for name, value in {"X-Request-ID": request_id, **PRIVATE}.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self.app(scope, receive, answer)
        except Exception as error:
            if isinstance(error, Refusal):
                refusal = error
            else:
                event("request failed", severity=logging.ERROR, exc_info=error, id=request_id)
                why = f"the server failed; its log has more under {request_id}"
                refusal = Refusal(500, why, "failure")
            self.metrics.refused.labels(refusal.reason).inc()
            log["refused"] = refusal.reason
            if not status:
                sent = Response(refusal.body(), refusal.status, refusal.headers, "application/json")
                await sent(scope, receive, answer)
        path = scope["path"] if scope["path"] in self.paths else "other"
        route = getattr(scope.get("route"), "path", path)
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        seconds = time.perf_counter() - start
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        log = {"route": route, "status": status, "seconds": round(seconds, 6), **log}
        event("request", id=request_id, method=method, **log)


class ApiKeys:
    """API keys, kept as digests and compared in constant time; without any, none is needed."""

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._digests = tuple(sha256(key.encode()).digest() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether `Authorization: Bearer KEY` holds a valid key, if any is needed."""
        scheme, _, given = (authorization or b"").partition(b" ")
        digest = sha256(given.strip()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return not self or (scheme.lower() == b"bearer" and any(matches))


@dataclass(eq=False)
class RequestGuard:
    """Refuses requests before they are parsed: key, size, time, shape, and a full queue.

    Paths in `UNQUEUED` take no place in the queue. `retry_after` returns seconds.
    """

    app: ASGIApp
    settings: Settings
    keys: ApiKeys
    metrics: Metrics
    retry_after: Callable[[], int]
    pages: Collection[str]  # their paths
    in_progress: int = 0
    whole: int = 0  # of those, the ones whose bodies are read completely
    reading: int = 0  # bytes held of the other bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or raise its Refusal."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if scope["path"] not in (*OPEN, *self.pages) or scope["method"] not in ("GET", "HEAD"):
            self._check_sender(headers)
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        _check_form(headers)
        queued = scope["path"] not in UNQUEUED
        self._refuse_when_full(queued=queued)
        self.in_progress += 1
        self.metrics.in_progress.inc()
        try:
            content = await self._read(headers, receive, queued=queued)
            self._check_json(content)
            self._refuse_when_full(queued=queued)  # slow bodies take up no places in the queue
            body: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

            async def replay() -> Message:
                return body.pop() if body else await receive()

            self.whole += queued
            try:
                await self.app(scope, replay, send)
            finally:
                self.whole -= queued
        finally:
            self.in_progress -= 1
            self.metrics.in_progress.dec()

    def _refuse_when_full(self, *, queued: bool) -> None:
        full = queued and self.whole >= self.settings.queue
        if full or self.reading >= READ * self.settings.max_body:
            seconds = self.retry_after()
            why = f"too many requests in progress ({self.in_progress}); try again in {seconds} s"
            raise Refusal(429, why, "full", {"Retry-After": str(seconds)})

    def _check_sender(self, headers: dict[bytes, bytes]) -> None:
        if not self.keys.allow(headers.get(b"authorization")):
            why = "expected a key of this server: Authorization: Bearer KEY"
            raise Refusal(401, why, "key", {"WWW-Authenticate": "Bearer"})
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = re.sub(r":\d*$", "", host).strip("[]")
        if not self.keys and name not in (*LOCAL, self.settings.host):
            # DNS rebinding: a web page could point its own name to this machine, and read answers
            raise Refusal(421, "a server without keys answers to localhost only", "host")

    async def _read(self, headers: dict[bytes, bytes], receive: Receive, *, queued: bool) -> bytes:
        max_body, body = self.settings.max_body, bytearray()
        refused = Refusal(413, f"the body has more than {max_body} bytes", "size")
        if int(headers.get(b"content-length", b"0")) > max_body:
            raise refused
        seconds, more = self.settings.read_timeout, True
        try:
            async with asyncio.timeout(seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(408, "the client went away", "gone")
                    part = message.get("body", b"")
                    if len(body) + len(part) > max_body:
                        raise refused
                    body += part
                    self.reading += len(part)
                    self._refuse_when_full(queued=queued)
                    more = message.get("more_body", False)
        except TimeoutError:
            why = f"the body did not come within {seconds:g} seconds"
            raise Refusal(408, why, "slow", {"Connection": "close"}) from None
        finally:
            self.reading -= len(body)
        return bytes(body)

    def _check_json(self, content: bytes) -> None:
        """Refuse with 422 a body that is not UTF-8, nested too deep, or of too many values."""
        try:
            content.decode()
        except UnicodeDecodeError:
            raise Refusal(422, "the body is not JSON in UTF-8", "input") from None
        if b"\0" in content:  # JSON escapes NUL, so it is UTF-16 or UTF-32
            raise Refusal(422, "the body is not JSON in UTF-8", "input")
        deep, commas = shape(content)
        max_depth, max_values = self.settings.max_depth, self.settings.max_values
        if deep > max_depth:
            raise Refusal(422, f"the JSON is nested more than {max_depth} deep", "depth")
        if commas >= max_values:
            raise Refusal(422, f"the JSON has more than {max_values} values", "size")


_STRING = re.compile(rb'"(?>[^"\\]+|\\.)*+"?', re.DOTALL)
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1


def shape(content: bytes) -> tuple[int, int]:
    """The nesting depth of a JSON text, and its commas; arbitrary numbers if it is broken."""
    bare = _STRING.sub(b"", content)
    steps = _STEP[np.frombuffer(bare, dtype=np.uint8)]
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)), bare.count(b",")


def _check_form(headers: dict[bytes, bytes]) -> None:
    """Refuse with 415 what does not say that it is JSON in UTF-8, and compressed bodies."""
    kind = Header()
    kind["content-type"] = headers.get(b"content-type", b"").decode("latin-1")
    try:
        charset = str(kind.get_param("charset", "utf-8")).lower()
    except (ValueError, TypeError):  # malformed continuations of a parameter
        charset = ""
    if kind.get_content_type() != "application/json" or charset not in ("utf-8", "utf8"):
        raise Refusal(415, "expected Content-Type: application/json, in UTF-8", "type")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal(415, "expected a body that is not compressed", "type")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Answer]) -> Answer:
    """The result of `work`; cancelled, a Refusal, if the client leaves. Read the body before."""

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answer, gone = asyncio.ensure_future(work), asyncio.ensure_future(until_gone())
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refusal(408, "the client went away", "gone")
        return answer.result()
    finally:
        for task in (answer, gone):
            task.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)

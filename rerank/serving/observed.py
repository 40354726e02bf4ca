"""The outermost layer: every request gets an id, an answer in JSON, a line in the log, a count."""

from __future__ import annotations

import logging
import re
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerank.serving.errors import Refusal, body
from rerank.serving.logs import event
from rerank.serving.metrics import Metrics

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
FIELDS = "log_fields"  # of a request's state: what its route adds to the line


class Observed:
    """Answers what the layers below refuse, and tells of every request without its text."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode() if _ID.fullmatch(given) else uuid.uuid4().hex
        fields: dict[str, Any] = {}
        scope.setdefault("state", {}).update({"request_id": request_id, FIELDS: fields})

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception as error:
            refusal = error if isinstance(error, Refusal) else _failed(error, request_id)
            self._metrics.refused.labels(refusal.reason).inc()
            fields["refused"] = refusal.reason
            if not status:
                await _send(refusal, answer)
        route = getattr(scope.get("route"), "path", "other")
        seconds = time.perf_counter() - start
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        event(
            "request",
            id=request_id,
            method=scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other",
            route=route,
            status=status,
            seconds=round(seconds, 6),
            **fields,
        )


def _failed(error: Exception, request_id: str) -> Refusal:
    event("request failed", severity=logging.ERROR, exc_info=error, id=request_id)
    return Refusal(500, f"the server failed; its log has more under {request_id}", reason="failure")


async def _send(refusal: Refusal, send: Send) -> None:
    content = body(refusal.sentence)
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        **refusal.headers,
    }
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": content})

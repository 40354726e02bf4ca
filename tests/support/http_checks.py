"""What tests of a running server share: a good request, a raw connection, a refusal, a metric."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

JSON = {"content-type": "application/json"}
HEAD = (
    b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 50\r\n\r\n"
)


def body(**changed: Any) -> bytes:
    """A good rerank request with fields replaced, as JSON; NaN and infinity as Python has them."""
    return json.dumps({"query": "median", "documents": ["a", "b"], **changed}).encode()


def connect(url: str, *parts: bytes) -> socket.socket:
    """A connection on which these bytes have been sent."""
    host, port = url.removeprefix("http://").split(":")
    made = socket.create_connection((host, int(port)), timeout=600)
    for part in parts:
        made.sendall(part)
    return made


def assert_refused(answer: httpx.Response, status: int, *words: str) -> None:
    """Check status, form and words of a refusal."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    assert set(found) == {"message", "detail"}
    assert found["message"] == found["detail"]
    assert all(word in found["message"] for word in words), found["message"]


def metric(client: httpx.Client, name: str, **labels: str) -> float:
    """One sample of `/metrics`."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return next(
        s.value for f in families for s in f.samples if (s.name, s.labels) == (name, labels)
    )

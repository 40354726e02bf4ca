"""What a request may cost and look like before it is read as a request; asked with raw sockets."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from http_checks import JSON, assert_refused, body, connect
from server import serving

GET = b"GET /v1/model HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
POST = b"POST /v1/rerank HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CONTENT = body()
LENGTH = b"Content-Length: %d\r\n" % len(CONTENT)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n" % (len(CONTENT), CONTENT)
LINES = b"X:\r\n" * 15_900
KEY = b"Authorization: Bearer right\r\n"


@pytest.fixture(scope="module")
def url(run: Any) -> Iterator[str]:
    """The address of a server without keys."""
    with serving(run.folder, read_timeout=600.0, max_body=2**20) as started:
        yield started.url


@pytest.fixture(scope="module")
def locked(run: Any) -> Iterator[str]:
    """The address of a server with a key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RERANK_API_KEYS", "right")
        with serving(run.folder, read_timeout=600.0) as started:
            yield started.url


def heard(open_socket: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := open_socket.recv(65536):
            parts.append(part)
    return b"".join(parts)


def asked(url: str, *parts: bytes) -> bytes:
    """What a server says to these bytes until it closes."""
    with connect(url) as made:
        with contextlib.suppress(OSError):  # closed before all was sent
            for part in parts:
                made.sendall(part)
        return heard(made)


TWO_WAYS = {
    "a length and chunks": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS + b"\r\n",
    "chunks and a length": POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS + b"\r\n",
    "two lengths": POST + LENGTH + b"content-length: 1\r\n\r\n" + CONTENT,
    "one length twice": POST + LENGTH * 2 + b"\r\n" + CONTENT,
    "a list of lengths": POST + LENGTH[:-2] + b", %d\r\n\r\n" % len(CONTENT) + CONTENT,
    "a signed length": POST + LENGTH.replace(b": ", b": +") + b"\r\n" + CONTENT,
    "chunks twice": POST + CHUNKED * 2 + b"\r\n" + CHUNKS + b"\r\n",
    "chunks in HTTP/1.0": POST.replace(b"/1.1", b"/1.0") + CHUNKED + b"\r\n" + CHUNKS + b"\r\n",
    "a CR in the line of a chunk": POST
    + CHUNKED
    + b"\r\n"
    + CHUNKS.replace(b"\r", b";a\rb\r", 1)
    + b"\r\n",
    "a NUL in the line of a chunk": POST
    + CHUNKED
    + b"\r\n"
    + CHUNKS.replace(b"\r", b";\0\r", 1)
    + b"\r\n",
    "a CR in the last chunk": POST
    + CHUNKED
    + b"\r\n"
    + CHUNKS.replace(b"\n0", b"\n0;\r0")
    + b"\r\n",
    "another version": POST.replace(b"/1.1", b"/2.0") + LENGTH + b"\r\n" + CONTENT,
    "a trailer": POST + CHUNKED + b"\r\n" + CHUNKS + b"Content-Length: 1\r\n\r\n",
    "LF alone": (POST + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + CONTENT,
    "one LF alone": GET + b"Host: localhost\nX: 1\r\n\r\n",
    "a blank line of LF alone": GET + HOST + b"\n",
    "CR alone": GET + HOST + b"X: 1\rY: 2\r\n\r\n",
    "a header in two lines": GET + HOST + b"X: 1\r\n 2\r\n\r\n",
    "a header in two lines, by a tab": GET + HOST + b"X: 1\r\n\t2\r\n\r\n",
    "a space before the colon": GET + HOST + b"X : 1\r\n\r\n",
    "two hosts": GET + HOST * 2 + b"\r\n",
    **{
        f"host {host}": GET + b"Host: %s\r\n\r\n" % host.encode()
        for host in (
            *("]localhost[", "[localhost]", "[localhost", "localhost]", "[127.0.0.1]", "::1"),
            *(
                "[::1]x",
                "localhost:x",
                "localhost:80:80",
                "a@localhost",
                "localhost/",
                "local host",
            ),
            *("localhost,evil.example", "localhost:999999"),
        )
    },
}


@pytest.mark.parametrize("name", TWO_WAYS)
def test_what_can_be_read_in_two_ways_is_refused(url: str, name: str) -> None:
    """With 400, and the connection closed: a proxy may have seen another request in it."""
    said = asked(url, TWO_WAYS[name])
    assert said.startswith(b"HTTP/1.1 400")
    assert said.count(b"\r\n\r\n") == 1
    assert b"no-store" in said
    assert "one Host header" in json.loads(said.partition(b"\r\n\r\n")[2])["message"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:8"])
def test_good_hosts(url: str, host: str) -> None:
    """By name or by address, with a port or without."""
    assert httpx.get(f"{url}/v1/model", headers={"host": host}).status_code == 200


def test_a_request_in_pieces_is_read(url: str) -> None:
    """Wherever its bytes are parted: at a line end, in a chunk, before the last line end."""
    close = b"Connection: close\r\n"
    for whole in (
        POST + close + LENGTH + b"\r\n" + CONTENT,
        POST + close + CHUNKED + b"\r\n" + CHUNKS + b"\r\n",
    ):
        with connect(url) as made:
            for i in range(len(whole)):
                made.sendall(whole[i : i + 1])
            assert heard(made).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "headers",
    [
        LINES,
        b"X:\r\n" * 100,
        b"X: " + b"x" * 2**14 + b"\r\n",
        b"X: " + b"x" * 2**14,
        b"".join(b"X%d: %s\r\n" % (i, b"x" * 400) for i in range(50)),
    ],
    ids=["lines", "a line too many", "a long line", "a line without end", "long lines"],
)
@pytest.mark.parametrize("first", [b"", GET + HOST + KEY + b"\r\n"], ids=["alone", "after another"])
def test_many_headers_are_refused(locked: str, headers: bytes, first: bytes) -> None:
    """With 431 and the connection closed, also on a connection that has had its answer."""
    said = asked(locked, first + GET + HOST + headers + b"\r\n\r\n")
    *answers, last = said.split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * bool(first)
    assert last.startswith(b"431")


def test_a_kept_connection_has_the_limit_again(locked: str) -> None:
    """Of each request, and up to it a request is answered."""
    most = GET + HOST + KEY + b"X:\r\n" * 98 + b"\r\n"
    with connect(locked, most) as made:
        assert made.recv(12) == b"HTTP/1.1 200"
        made.sendall(most + GET + HOST + LINES + b"\r\n")
        said = heard(made)
    assert said.count(b"HTTP/1.1 200") == 1
    assert said.count(b"HTTP/1.1 431") == 1


def test_trailers_are_not_read(locked: str) -> None:
    """They are headers too; here nobody reads them."""
    for cut in (0, len(CHUNKS), len(CHUNKS) - 2):
        whole = CHUNKS + LINES + b"\r\n"
        said = asked(locked, POST + KEY + CHUNKED + b"\r\n", whole[:cut], whole[cut:])
        assert said.startswith(b"HTTP/1.1 400")


def test_a_key_is_needed_before_the_body(locked: str) -> None:
    """The refusal comes before a byte of the body, and what comes of it is not read."""
    for sent in (b"Content-Length: 9000000\r\n", CHUNKED):
        with connect(locked, POST + sent + b"\r\n") as made:
            assert heard(made).startswith(b"HTTP/1.1 401")
            made.sendall(b"x" * 9_000_000)


def test_a_large_body_is_refused_by_its_length(url: str) -> None:
    """Before a byte of it; in chunks, after the last byte that is taken. Its client hears why."""
    with connect(url, POST + b"Content-Length: %d\r\n\r\n" % (2**20 + 1)) as made:
        assert heard(made).startswith(b"HTTP/1.1 413")
    with connect(url, POST + CHUNKED + b"\r\n200000\r\n" + b" " * (2**20 + 1)) as made:
        assert heard(made).startswith(b"HTTP/1.1 413")
    for content in (b" " * 60_000_000, iter([b" " * 1_000_000] * 60)):
        answer = httpx.post(f"{url}/v1/rerank", content=content, headers=JSON, timeout=600)
        assert_refused(answer, 413, "1048576 bytes")


def test_a_refused_small_body_keeps_the_connection(url: str) -> None:
    """So that a client that is told to come again need not connect again."""
    plain = POST.replace(b"application/json", b"text/plain")
    with connect(url, plain + LENGTH + b"\r\n") as made:
        assert made.recv(12) == b"HTTP/1.1 415"
        made.sendall(CONTENT + POST + b"Connection: close\r\n" + LENGTH + b"\r\n" + CONTENT)
        assert b"HTTP/1.1 200" in heard(made)


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/rerank", CONTENT, 200),
        ("POST", "/v1/rerank", b"{", 422),
        ("POST", "/v1/rerank", b" " * (2**20 + 1), 413),
        ("GET", "/v1/model", b"", 200),
        ("GET", "/nothing", b"", 404),
    ],
)
def test_no_answer_is_kept_or_guessed(
    url: str, method: str, path: str, content: bytes, status: int
) -> None:
    """By a proxy or a browser: an answer holds texts that a key protects; refusals are alike."""
    answer = httpx.request(method, f"{url}{path}", content=content, headers=JSON, timeout=600)
    assert answer.status_code == status
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1.0e+400", "Infinity", "-Infinity", "NaN"])
@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/search"])
def test_a_number_without_bounds_is_refused(url: str, path: str, number: str) -> None:
    """However it is written, and wherever it is, also where nobody reads it."""
    content = CONTENT[:-1] + b', "metadata": {"a": %s}}' % number.encode()
    answer = httpx.post(f"{url}{path}", content=content, headers=JSON, timeout=600)
    assert_refused(answer, 422, number, "give a number or null")


@pytest.mark.parametrize("empty", ["", " \n", "\u200b", {"text": ""}, {"text": " ", "title": ""}])
def test_an_empty_document_is_last(url: str, empty: Any) -> None:
    """With relevance 0, and the others as they are without it."""
    texts = ["The pump starts at nine.", "Water is wet."]
    asked = {"query": "pump", "documents": [texts[0], empty, texts[1]]}
    found = httpx.post(f"{url}/v1/rerank", json=asked, timeout=600).json()
    plain = httpx.post(
        f"{url}/v1/rerank", json={"query": "pump", "documents": texts}, timeout=600
    ).json()
    assert found["results"][-1] == {"index": 1, "relevance_score": 0.0}
    assert [r["relevance_score"] for r in found["results"][:-1]] == [
        r["relevance_score"] for r in plain["results"]
    ]
    assert found["confidence"] == plain["confidence"]
    answer = httpx.post(
        f"{url}/v1/rerank", json={"query": "pump", "documents": [empty] * 2}, timeout=600
    )
    assert answer.status_code == 200
    assert answer.json()["confidence"] == 0.0
    assert [r["relevance_score"] for r in answer.json()["results"]] == [0.0, 0.0]

"""What the server refuses, and how: a status, a sentence, and a server that goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerank.cli import main
from rerank.errors import InputError
from rerank.serving.middleware import Keys, shape
from rerank.serving.server import is_loopback, keys_for
from rerank.serving.settings import Settings

MOST = 20_000  # bytes of a body
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def started(run: Any, serving: Callable[..., Any]) -> Iterator[Any]:
    """A server with narrow bounds."""
    bounds = {"max_body": MOST, "max_documents": 3, "max_document": 500, "max_query": 100}
    with serving(run.folder, patience=1.0, max_depth=6, max_values=1000, **bounds) as made:
        yield made


@pytest.fixture(scope="module")
def client(started: Any) -> Iterator[httpx.Client]:
    """A client of that server."""
    with httpx.Client(base_url=started.url, timeout=60) as made:
        yield made


def refused(answer: httpx.Response, status: int, *words: str) -> None:
    """Check status, form and words of a refusal."""
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"message", "detail"}
    assert told["message"] == told["detail"]
    assert all(word in told["message"] for word in words), told["message"]


def rerank(**changed: Any) -> bytes:
    """A good request with fields replaced, as JSON; NaN and infinity as Python writes them."""
    return json.dumps({"query": "median", "documents": ["a", "b"], **changed}).encode()


HOSTILE = {
    "nothing": (b"", 422, "Field required"),
    "not JSON": (b"{query", 422, "no JSON: it breaks"),
    "half a JSON": (rerank()[:-4], 422, "no JSON: it breaks"),
    "no object": (b"[]", 422, "valid dictionary"),
    "a number": (b"7", 422, "valid dictionary"),
    "null": (b"null", 422, "valid dictionary"),
    "no UTF-8": (b'{"query": "\xff\xfe", "documents": []}', 422, "UTF-8"),
    "UTF-16": (rerank().decode().encode("utf-16"), 422, "UTF-8"),
    "UTF-16 that says nothing of it": (rerank().decode().encode("utf-16-le"), 422, "UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf" + rerank(), 200, ""),
    "deep arrays": (b"[" * 9000, 422, "nested more than 6"),
    "deep objects": (b'{"a":' * 3000 + b"1" + b"}" * 3000, 422, "nested more than 6"),
    "a long number": (rerank().replace(b'"a"', b"9" * 5000), 422, "no JSON that can be read"),
    "a large number": (rerank(top_n=10**30), 200, ""),
    "many values": (rerank(x=[0] * 1000), 422, "more than 1000 values"),
    "many bad documents": (rerank(documents=[7] * 900), 422, "documents.0"),
    "no number": (rerank(top_n=float("nan")), 422, "top_n"),
    "infinity": (rerank(top_n=float("inf")), 422, "top_n"),
    "a negative top_n": (rerank(top_n=-1), 422, "top_n"),
    "a surrogate": (rerank(query="\ud800"), 422, "surrogate"),
    "a surrogate in a document": (rerank(documents=["\udfff"]), 422, "surrogate"),
    "a surrogate beside": (rerank(model="\ud800"), 200, ""),
    "NUL": (rerank(query="\0", documents=["\0"]), 200, ""),
    "a key twice": (rerank()[:-1] + b', "query": 7}', 422, "query"),
    "a document of another kind": (rerank(documents=["a", 7]), 422, "documents.1"),
    "a document without text": (rerank(documents=[{"image": "http://a/b"}]), 422, "text"),
    "no documents": (rerank(documents=None), 422, "documents"),
    "another field": (rerank(rank_fields=["body"]), 422, "rank_fields"),
    "an empty query": (rerank(query=" \n"), 422, "empty"),
    "a long query": (rerank(query="x" * 101), 422, "101 characters", "100"),
    "many documents": (rerank(documents=["a"] * 4), 422, "4 documents", "3"),
    "a long document": (rerank(documents=["a", "x" * 501]), 422, "documents.1", "501"),
    "a large body": (rerank(query="x" * MOST), 413, "20000 bytes"),
    "a huge body": (b'"' + b"x" * 10_000_000, 413, "20000 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies(client: httpx.Client, name: str) -> None:
    """Each is refused with a sentence, or harmless; sent whole or in chunks without a length."""
    content, status, *words = HOSTILE[name]
    for sent in (content, iter([content[:7], content[7:]])):
        try:
            answer = client.post("/v1/rerank", content=sent, headers=JSON)
        except httpx.WriteError:  # refused by its length before it was sent
            assert len(content) > 16 * MOST
            continue
        if status == 200:
            assert answer.status_code == 200
        else:
            refused(answer, status, *words)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(["/v1/search", "/v1/rerank", "/v1/assess"]),
    content=st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
            lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=5), x, max_size=4),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {},
            optional={
                name: st.one_of(
                    st.none(),
                    st.integers(),
                    st.text(max_size=5),
                    st.lists(st.one_of(st.text(max_size=5), st.floats()), max_size=3),
                )
                for name in ("question", "query", "documents", "scores", "top_n", "reranker")
            },
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_any_body_is_answered(client: httpx.Client, path: str, content: bytes) -> None:
    """No bytes make the server fail: an answer, or a refusal with a sentence."""
    answer = client.post(path, content=content, headers=JSON)
    if answer.status_code == 200:
        assert 0 <= answer.json()["confidence"] <= 1
    else:
        assert answer.status_code in (409, 422)
        assert len(answer.json()["message"]) > 5


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.text() | st.floats(),
        lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3),
        max_leaves=10,
    )
)
def test_shape(value: Any) -> None:
    """Depth and commas of a JSON text are those of its value, whatever its strings hold."""

    def nested(v: Any) -> int:
        if isinstance(v, dict):
            return 1 + max(map(nested, v.values()), default=0)
        return 1 + max(map(nested, v), default=0) if isinstance(v, list) else 0

    def parted(v: Any) -> int:
        inner = list(v.values()) if isinstance(v, dict) else v if isinstance(v, list) else []
        return max(0, len(inner) - 1) + sum(map(parted, inner))

    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only).encode()
        assert shape(text) == (nested(value), parted(value))


def test_form(client: httpx.Client) -> None:
    """Other content types, encodings, methods and paths are refused in JSON."""
    for kind in ("text/plain", "application/xml", "application/json; charset=utf-16", ""):
        answer = client.post("/v1/rerank", content=rerank(), headers={"content-type": kind})
        refused(answer, 415, "application/json")
    packed = {**JSON, "content-encoding": "gzip"}
    refused(client.post("/v1/rerank", content=rerank(), headers=packed), 415, "compressed")
    refused(client.get("/v1/rerank"), 405, "Not Allowed")
    refused(client.post("/v1/../etc/passwd", content=rerank(), headers=JSON), 404, "Not Found")
    refused(client.get("/v1/model", headers={"host": "evil.example"}), 421, "localhost")


def _raw(url: str, *parts: bytes) -> socket.socket:
    """A connection on which so much has been sent."""
    host, port = url.removeprefix("http://").split(":")
    made = socket.create_connection((host, int(port)), timeout=30)
    for part in parts:
        made.sendall(part)
    return made


HEAD = (
    b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 50\r\n\r\n"
)


def test_slow_clients(started: Any, client: httpx.Client) -> None:
    """Who never sends its headers is cut off; who never sends its body hears 408; others go on."""
    silent, halting, late = (
        _raw(started.url),
        _raw(started.url, b"POST /v1/rerank HT"),
        _raw(started.url, HEAD, b'{"query"'),
    )
    assert client.post("/v1/rerank", content=rerank(), headers=JSON).status_code == 200
    assert silent.recv(1) == b""
    assert halting.recv(1) == b""
    answer = late.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408")
    for made in (silent, halting, late):
        made.close()


def test_a_client_that_does_not_read(run: Any, serving: Callable[..., Any]) -> None:
    """Who asks and does not read the answer is cut off, and keeps nothing of the server."""
    asked = {"query": "a", "documents": ["b" * 99_000] * 40, "return_documents": True}
    content = json.dumps(asked).encode()
    with serving(run.folder, patience=3.0) as started, socket.socket() as deaf:
        host, port = started.url.removeprefix("http://").split(":")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((host, int(port)))
        deaf.sendall(HEAD.replace(b"Length: 50", b"Length: %d" % len(content)) + content)
        for _ in range(600):
            time.sleep(0.05)
            if not started.server.server_state.connections:
                break
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while part := deaf.recv(65536):
                heard += part
        assert not started.server.server_state.connections
        assert len(heard) < len(content)


def test_bounded_queue(run: Any, serving: Callable[..., Any]) -> None:
    """With all places taken the next hears 429 and when to come again; a free place is taken."""
    with (
        serving(run.folder, queue=2, patience=60.0) as started,
        httpx.Client(base_url=started.url, timeout=60) as client,
    ):
        holding = [_raw(started.url, HEAD, b"{") for _ in range(2)]
        while "rerank_requests_in_hand 2.0" not in client.get("/metrics").text:
            pass
        full = client.post("/v1/rerank", content=rerank(), headers=JSON)
        refused(full, 429, "2 requests are in hand")
        assert 1 <= int(full.headers["retry-after"]) <= 60
        for made in holding:
            made.close()
        while "rerank_requests_in_hand 0.0" not in client.get("/metrics").text:
            pass
        assert client.post("/v1/rerank", content=rerank(), headers=JSON).status_code == 200


def test_timeouts(run: Any, serving: Callable[..., Any]) -> None:
    """What is not ready in time is 504, what was not begun 503; the server then goes on."""
    documents = [f"word {i} " * 300 for i in range(60)]
    with (
        serving(run.folder, timeout=0.15) as started,
        httpx.Client(base_url=started.url, timeout=60) as client,
        ThreadPoolExecutor(6) as pool,
    ):
        sent = [
            pool.submit(client.post, "/v1/rerank", json={"query": "word", "documents": documents})
            for _ in range(6)
        ]
        answers = [s.result() for s in sent]
        codes = {a.status_code for a in answers}
        assert codes <= {503, 504}
        assert 504 in codes
        for answer in answers:
            refused(answer, answer.status_code, "0.15 seconds")
            assert ("retry-after" in answer.headers) == (answer.status_code == 503)
        assert client.get("/readyz").status_code == 200


def test_shutdown_answers_what_was_taken(run: Any, serving: Callable[..., Any]) -> None:
    """Requests that are read, or wait for it, when the server is told to stop are all answered."""
    documents = [f"word {i} " * 100 for i in range(100)]  # seconds of reading a request
    with (
        serving(run.folder, batch=2) as started,
        httpx.Client(base_url=started.url, timeout=120) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        sent = [
            pool.submit(client.post, "/v1/rerank", json={"query": f"{i}", "documents": documents})
            for i in range(3)
        ]
        while "rerank_requests_in_hand 3.0" not in client.get("/metrics").text:
            assert not all(s.done() for s in sent), "too fast to be caught"
        stopping = threading.Thread(target=started.stop)
        stopping.start()
        assert [s.result().status_code for s in sent] == [200] * 3
        stopping.join()


def test_keys(run: Any, serving: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys nothing but the three open paths answers without one, and only in its header."""
    monkeypatch.setenv("RERANK_API_KEYS", "first-key, second-key")
    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=60) as client,
    ):
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert client.get(path).status_code == 200
            refused(client.post(path, content=b"{}", headers=JSON), 401, "Bearer KEY")
        for wrong in (
            {},
            {"authorization": "Bearer"},
            {"authorization": "Bearer first"},
            {"authorization": "Bearer first-key,second-key"},
            {"authorization": "Basic first-key"},
            {"authorization": "first-key"},
            {"x-api-key": "first-key"},
            {"cookie": "authorization=first-key"},
        ):
            for path in ("/metrics", "/v1/model", "/v1/rerank?api_key=first-key", "/nothing"):
                answer = client.get(path, headers=wrong)
                refused(answer, 401, "Bearer KEY")
                assert answer.headers["www-authenticate"] == "Bearer"
        for key in ("first-key", "second-key"):
            sent = {**JSON, "authorization": f"Bearer {key}", "host": "any.name"}
            assert client.post("/v1/rerank", content=rerank(), headers=sent).status_code == 200


def test_no_key_only_on_loopback(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that others can reach does not start without keys."""
    monkeypatch.delenv("RERANK_API_KEYS", raising=False)
    for host in ("0.0.0.0", "::", ""):
        assert not is_loopback(host)
        assert main(["serve", str(run.folder), "--host", host]) == 2
        assert "RERANK_API_KEYS" in capsys.readouterr().err
    for host in ("127.0.0.1", "127.8.9.10", "localhost", "::1"):
        assert is_loopback(host)
        assert not keys_for(host, {})
    assert keys_for("0.0.0.0", {"RERANK_API_KEYS": "k"}).allow(b"Bearer k")
    assert not Keys(("k",)).allow(None)
    with pytest.raises(InputError, match="ASCII"):
        keys_for("127.0.0.1", {"RERANK_API_KEYS": "schlüssel"})


def test_settings_refuse() -> None:
    """Bounds that no server can keep are refused by name."""
    for name, value in {"queue": 0, "timeout": 0.0, "port": 70000, "poll": -1.0}.items():
        with pytest.raises(InputError, match=name):
            Settings(**{name: value})


def test_taken_port(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is taken is one sentence and exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", str(run.folder), "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err

"""What is refused before it is ranked, and how: a status, a sentence, and a server that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from http_checks import JSON, assert_refused, body
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server import serving

from rerank.serving.middleware import shape

MAX_BODY = 20_000  # bytes of a body


@pytest.fixture(scope="module")
def started(run: Any) -> Iterator[Any]:
    """A server with narrow bounds."""
    bounds = {"max_body": MAX_BODY, "max_documents": 3, "max_document": 500, "max_query": 100}
    with serving(run.folder, read_timeout=600.0, max_depth=6, max_values=1000, **bounds) as made:
        yield made


@pytest.fixture(scope="module")
def client(started: Any) -> Iterator[httpx.Client]:
    """A client of that server."""
    with httpx.Client(base_url=started.url, timeout=600) as made:
        yield made


HOSTILE = {
    "nothing": (b"", 422, "should be a JSON object, got nothing"),
    "not JSON": (b"{query", 422, "not JSON: it breaks"),
    "half a JSON": (body()[:-4], 422, "not JSON: it breaks"),
    "no object": (b"[]", 422, "should be a JSON object, got a list"),
    "a number": (b"7", 422, "should be a JSON object, got a whole number"),
    "null": (b"null", 422, "should be a JSON object, got null"),
    "no UTF-8": (b'{"query": "\xff\xfe", "documents": []}', 422, "UTF-8"),
    "UTF-16": (body().decode().encode("utf-16"), 422, "UTF-8"),
    "UTF-16 that says nothing of it": (body().decode().encode("utf-16-le"), 422, "UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf" + body(), 200, ""),
    "deep arrays": (b"[" * 9000, 422, "nested more than 6"),
    "deep objects": (b'{"a":' * 3000 + b"1" + b"}" * 3000, 422, "nested more than 6"),
    "a long number": (body().replace(b'"a"', b"9" * 5000), 422, "not JSON that can be read"),
    "a large number": (body(top_n=10**30), 200, ""),
    "many values": (body(x=[0] * 1000), 422, "more than 1000 values"),
    "many bad documents": (
        body(documents=[7] * 900),
        422,
        "documents.0 should be text or an object, got a whole number",
    ),
    "no number": (body(top_n=float("nan")), 422, "NaN, which is not JSON"),
    "infinity": (body(top_n=float("inf")), 422, "Infinity, which is not JSON"),
    "a negative top_n": (body(top_n=-1), 422, "top_n"),
    "a surrogate": (body(query="\ud800"), 422, "surrogate"),
    "a surrogate in a document": (body(documents=["\udfff"]), 422, "surrogate"),
    "a surrogate beside": (body(model="\ud800"), 200, ""),
    "NUL": (body(query="a\0", documents=["\0"]), 200, ""),
    "a key twice": (body()[:-1] + b', "query": "b"}', 422, "'query' twice in one object"),
    "a document of another kind": (body(documents=["a", 7]), 422, "documents.1"),
    "a document without text": (body(documents=[{"image": "http://a/b"}]), 422, "text"),
    "no documents": (body(documents=None), 422, "documents"),
    "an unknown field": (body(topn=3), 422, "did you mean 'top_n'"),
    "another rank field": (body(rank_fields=["body"]), 422, "rank_fields"),
    "an empty query": (body(query=" \n"), 422, "empty"),
    "a long query": (body(query="x" * 101), 422, "101 characters", "100"),
    "many documents": (body(documents=["a"] * 4), 422, "4 documents", "3"),
    "a long document": (body(documents=["a", "x" * 501]), 422, "documents.1", "501"),
    "a large body": (body(query="x" * MAX_BODY), 413, "20000 bytes"),
    "a huge body": (b'"' + b"x" * 10_000_000, 413, "20000 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies(client: httpx.Client, name: str) -> None:
    """Each is refused with a sentence, or harmless; sent whole or in chunks without a length."""
    content, status, *words = HOSTILE[name]
    for sent in (content, iter([content[:7], content[7:]])):
        answer = client.post("/v1/rerank", content=sent, headers=JSON)
        if status == 200:
            assert answer.status_code == 200
        else:
            assert_refused(answer, status, *words)


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
                for name in (
                    "question",
                    "query",
                    "documents",
                    "top_k",
                    "scores",
                    "top_n",
                    "reranker",
                )
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
    for kind in (
        *("text/plain", "application/xml", "application/json; charset=utf-16", ""),
        f"application/json; charset*{4400 * '0'}=x",
        "application/json; charset*=a; charset*0=b",
    ):
        answer = client.post("/v1/rerank", content=body(), headers={"content-type": kind})
        assert_refused(answer, 415, "application/json")
    packed = {**JSON, "content-encoding": "gzip"}
    assert_refused(client.post("/v1/rerank", content=body(), headers=packed), 415, "compressed")
    unread = client.post("/v1/rerank?top_n=1", content=body(), headers=JSON)
    assert_refused(unread, 422, "unknown parameter 'top_n' in the address; this route has none")
    assert_refused(client.get("/v1/rerank"), 405, "GET /v1/rerank")
    assert_refused(
        client.post("/v1/../etc/passwd", content=body(), headers=JSON), 404, "there is no"
    )
    for slashed in (
        client.post("/v1/rerank/", content=body(), headers=JSON),
        client.get("/watch/"),
    ):
        assert_refused(slashed, 404, "there is no")
    assert_refused(client.get("/v1/model", headers={"host": "evil.example"}), 421, "localhost")


def test_keys(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys nothing but the three open paths answers without one, and only in its header."""
    monkeypatch.setenv("RERANK_API_KEYS", "first-key, second-key")
    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert client.get(path).status_code == 200
            assert client.head(path).status_code == 200
            assert_refused(client.post(path, content=b"{}", headers=JSON), 401, "Bearer KEY")
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
                assert_refused(answer, 401, "Bearer KEY")
                assert answer.headers["www-authenticate"] == "Bearer"
        for key in ("first-key", "second-key"):
            sent = {**JSON, "authorization": f"Bearer {key}", "host": "any.name"}
            assert client.post("/v1/rerank", content=body(), headers=sent).status_code == 200


@pytest.mark.parametrize("path", ["/v1/search", "/v1/rerank", "/v1/retrieve"])
def test_no_route_takes_a_key_twice(client: httpx.Client, path: str) -> None:
    """Readers differ in which of the two values counts."""
    answer = client.post(path, content=b'{"query": "a", "query": "b"}', headers=JSON)
    assert answer.status_code == 422
    assert "'query' twice in one object" in answer.json()["message"]

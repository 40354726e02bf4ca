"""OpenSearch and Elasticsearch: what is sent, and what a server may do besides answering.

The server is `search_server`, which stands in for both: their clients are real, it is not.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collections_of import SERVERS
from search_server import INDEX, SearchServer, searching

from rerank.assessment.sources.other_system import SearchSystem
from rerank.errors import InputError, RetrieverError
from rerank.systems.settings import (
    KEY,
    URL,
    RetrieverSettings,
    connect,
    connect_of_model,
    read_settings,
)

VECTOR = np.array([1.0, 0.0], dtype=np.float32)
ROWS = [
    {"id": "a", "title": "t", "text": "red", "place": "p", "vector": [1.0, 0.0]},
    {"id": "b", "title": "t", "text": "blue", "place": "p", "vector": [0.0, 1.0]},
]
BASIC = "Basic " + base64.b64encode(b"me:secret").decode()


@pytest.fixture(params=sorted(SERVERS))
def kind(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(SERVERS[request.param])
    found: str = request.param
    return found


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with searching(ROWS) as started:
        yield started


def system_at(url: str, kind: str, **changed: Any) -> SearchSystem:
    given = {"keyword": ("title^2", "text"), "vector": "vector", "timeout": 60.0, **changed}
    return connect(RetrieverSettings(kind, url, INDEX, **given))


def test_a_host_without_http_is_told_as_it_was_given(kind: str, tmp_path: Path) -> None:
    """It is not a folder, so no path is made of it."""
    path = tmp_path / "r.toml"
    path.write_text(f'system = "{kind}"\nurl = "localhost"\ncollection = "c"\nkeyword = "text"\n')
    with pytest.raises(InputError, match=r"such as http://localhost:9200, got 'localhost'$"):
        connect(read_settings(path))


def test_what_is_sent(server: SearchServer, kind: str) -> None:
    """The bodies that the documentation of each asks for; vectors are not fetched."""
    system = system_at(server.url, kind)
    assert [h.passage.doc_id for h in system.keyword("red", 5)] == ["a"]
    assert [h.passage.doc_id for h in system.vector(VECTOR, 2)] == ["a", "b"]
    by_words, by_vector = server.bodies
    assert by_words == {
        "query": {"multi_match": {"query": "red", "fields": ["title^2", "text"]}},
        "size": 5,
        "_source": ["id", "text"],
    }
    nearest = {
        "opensearch": {"query": {"knn": {"vector": {"vector": [1.0, 0.0], "k": 2}}}},
        "elasticsearch": {
            "knn": {"field": "vector", "query_vector": [1.0, 0.0], "k": 2, "num_candidates": 100}
        },
    }
    assert by_vector == {**nearest[kind], "size": 2, "_source": ["id", "text"]}
    assert server.options == {"allow_partial_search_results=false"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"_shards": {"total": 3, "successful": 2, "failed": 1}}, "1 of 3 shards failed"),
        ({"timed_out": True}, "limit of time"),
    ],
)
def test_an_answer_of_a_part_of_the_index_is_none(
    server: SearchServer, kind: str, said: dict[str, Any], why: str
) -> None:
    """Its best passage may be missing, so the confidence would be wrong."""
    system = system_at(server.url, kind)
    server.partial = said
    for search in (
        lambda: system.keyword("red", 5),
        lambda: system.vector(VECTOR, 2),
        lambda: system.passages(["a"]),
    ):
        with pytest.raises(RetrieverError, match=f"only a part of the index: .*{why}"):
            search()


def test_the_id_of_the_document_itself(server: SearchServer, kind: str) -> None:
    """`id = "_id"`, where documents hold none."""
    system = system_at(server.url, kind, id="_id")
    assert system.keyword("blue", 5)[0].passage.doc_id == "own-1"
    assert [p.text for p in system.passages(["own-1", "own-9"])] == ["blue"]


def test_a_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment; a wrong one is told without it."""
    with searching(ROWS, password=BASIC) as guarded:
        monkeypatch.setenv(KEY, "me:secret")
        assert system_at(guarded.url, kind).keyword("red", 1)
        monkeypatch.setenv(KEY, "me:wrong")
        with pytest.raises(RetrieverError, match=f"status 401.*{KEY}") as told:
            system_at(guarded.url, kind).keyword("red", 1)
        assert "wrong" not in str(told.value)
        monkeypatch.setenv(KEY, "me:secret")
        monkeypatch.setenv(URL, guarded.url)  # then a model folder's own address does not count
        kept = RetrieverSettings(kind, "http://127.0.0.1:9", INDEX, keyword=("text",)).to_dict()
        assert connect_of_model(kept).keyword("red", 1)


def test_a_server_that_stalls(server: SearchServer, kind: str) -> None:
    """It is given up after `timeout` seconds, in one sentence."""
    server.held = threading.Event()
    try:
        with pytest.raises(RetrieverError, match=r"no answer: .*(timed out|timeout)"):
            system_at(server.url, kind, timeout=0.2).keyword("red", 1)
    finally:
        server.held.set()


def test_no_server(kind: str) -> None:
    """Neither at the address, nor in the settings."""
    with pytest.raises(RetrieverError, match=r"no answer: .*onnection"):
        system_at("http://127.0.0.1:9", kind).keyword("red", 1)
    with pytest.raises(InputError, match="should be the address of a server"):
        system_at("folder", kind)


def test_a_server_of_something_else(
    server: SearchServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with JSON, but has no mapping: the system is named, not a key of the answer."""
    monkeypatch.setattr(server, "answer", lambda *_: (200, {"message": {"hello": "world"}}))
    with pytest.raises(RetrieverError, match="no mapping of an index"):
        system_at(server.url, kind).keyword("red", 1)

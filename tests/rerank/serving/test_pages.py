"""The pages hold no data and load nothing from elsewhere; their routes tell what they show."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.report.headline import split_report
from rerank.serving.app import PAGES as CORE
from rerank.serving.app import page_routes

WATCH = pytest.importorskip("rerank.journal.server").PAGES
LABEL = pytest.importorskip("rerank.labelling.server").PAGES
ASK = pytest.importorskip("rerank.rag.routes").PAGES
PAGES = {**CORE, **ASK, **WATCH, **LABEL}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_nothing_from_elsewhere(client: httpx.Client, path: str) -> None:
    """Its policy lets in only what this server sends; what it names is there."""
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    elsewhere = set(re.findall(r"https?://[^\s\"')]+", answer.text))
    assert elsewhere <= {"http://www.w3.org/2000/svg"}
    assert "innerHTML" not in answer.text
    if answer.headers["content-type"].startswith("text/html"):
        assert 'rel="icon"' in answer.text, "the browser asks for /favicon.ico, which is not there"
        for named in re.findall(r'(?:src|href)="([^"]+)"', answer.text):
            assert named in PAGES


@pytest.mark.parametrize("path", PAGES)
def test_head_is_answered_as_get_without_the_page(client: httpx.Client, path: str) -> None:
    """Link checkers and monitors ask for the headers alone."""
    whole, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-type", "content-length", "content-security-policy"):
        assert head.headers[name] == whole.headers[name]


def test_the_label_page_is_linked_where_labels_are_taken() -> None:
    """On every other page, and on none of a server without labels."""
    pages = [path for path, name in PAGES.items() if name.endswith(".html") and path != "/label"]
    for labels in (True, False):
        app = FastAPI()
        app.include_router(page_routes({**CORE, **ASK, **WATCH, **LABEL}, () if labels else LABEL))
        with TestClient(app) as client:
            for path in pages:
                assert ('href="/label"' in client.get(path).text) is labels, path


def test_pages_need_no_key_and_what_they_show_does(run: Any, monkeypatch: Any) -> None:
    """A key is asked for by the routes with data."""
    monkeypatch.setenv("RERANK_API_KEYS", "a-key-of-this-server")
    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        assert client.get("/").status_code == 200
        assert client.get("/v1/reliability").status_code == 401
        assert client.post("/v1/ask", json={"query": "median"}).status_code == 401


def test_ask_tells_all_that_the_page_shows(
    client: httpx.Client, model: CalibratedReranker, queries: list[str]
) -> None:
    """Answer, confidence, signs and sources are those of one assessment."""
    expected = model.search(queries[0])
    told = client.post("/v1/ask", json={"query": queries[0]}).json()
    assert told["assessment"]["confidence"] == expected.confidence
    assert told["assessment"]["level"] == expected.level
    assert [p["doc_id"] for p in told["passages"]] == [p.doc_id for p in expected.first(10)]
    assert told["passages"][0]["text"] == expected.first(1)[0].text
    assert told["passages"][0]["relevance"] == expected.confidence
    assert {"document", "heading", "page"} <= set(told["passages"][0])
    assert told["feedback"] is False  # this server keeps no journal
    assert told["answer"]["query_id"] == told["id"]
    assert 0 <= told["k"] <= len(told["passages"])
    assert {"name", "moved", "meaning"} <= set(told["signals"][0])
    assert client.post("/v1/ask", json={"query": ""}).status_code == 422


def test_reliability_tells_what_was_measured(client: httpx.Client, run: Any) -> None:
    """The slider's counts are those of the report; what is drawn holds every measured query."""
    told = client.get("/v1/reliability").json()
    kept = client.get("/v1/model").json()["reliability"]
    measured = kept["confidence"]["calibrated"]
    at = {round(row["threshold"], 2): row for row in told["curves"]["thresholds"]}
    assert at[0.7]["rows"] == measured["accepted"]
    assert at[0.7]["right"] == measured["right_accepted"]
    assert sum(bin_["rows"] for bin_ in told["curves"]["bins"]) == measured["n"]
    assert told["headline"] == split_report(run.outcome.report)[0]
    assert "curves" not in kept
    assert told["comparison"][-1][0] == "calibrated"

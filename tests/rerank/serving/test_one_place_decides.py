"""Whatever the thresholds of a model, every surface says the same of a query, in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server import serving

from rerank.advice.adaptive import take
from rerank.advice.explanation import explain
from rerank.assessment.model import CalibratedReranker
from rerank.config import Thresholds
from rerank.serving.responses import JSON_KEYS
from rerank.types import Query

advisory = pytest.importorskip("rerank.rag.decisions")
answering = pytest.importorskip("rerank.rag.answer.answering")
context = pytest.importorskip("rerank.rag.decisions")
stores = pytest.importorskip("rerank.journal.store")

ROUTES = ("search", "retrieve", "explain", "answer")
MCP_TOOLS = ("search", "explain", "assess_retrieval_confidence")


@dataclass
class Served:
    """A server of a model in this process, and its journal."""

    client: httpx.Client
    model: CalibratedReranker
    journal: str


@pytest.fixture(scope="module")
def served(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    journal = f"sqlite:///{tmp_path_factory.mktemp('decides')}/journal.db"
    with (
        serving(run.folder, journal=journal) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        yield Served(client, started.holder.current.model, journal)


@st.composite
def thresholds(draw: st.DrawFn) -> Thresholds:
    """Bands in their order, anywhere."""
    share = st.floats(0, 1)
    low, medium, high = sorted(draw(st.tuples(share, share, share)))
    partial, sufficient = sorted(draw(st.tuples(share, share)))
    return Thresholds(high, medium, low, sufficient, partial)


def from_tools(model: CalibratedReranker, query: str) -> list[dict[str, Any]]:
    """What the tools of the Model Context Protocol say; nothing without the extra."""
    try:
        import mcp

        from rerank.rag.mcp_server import mcp_server
    except ImportError:
        return []

    async def ask() -> list[dict[str, Any]]:
        async with mcp.Client(mcp_server(model)) as client:
            made = [await client.call_tool(tool, {"query": query}) for tool in MCP_TOOLS]
        return [one.structured_content for one in made]

    return asyncio.run(ask())


def from_http(served: Served, query: str) -> list[dict[str, Any]]:
    """What the routes and the data of the page say, and what the journal kept of each."""
    said = [served.client.post(f"/v1/{name}", json={"query": query}).json() for name in ROUTES]
    page = served.client.post("/v1/ask", json={"query": query}).json()
    assert served.client.get("/v1/journal").json()["monitors"]  # all is written by then
    with stores.JournalStore(served.journal) as store:
        journal = stores.JOURNAL
        newest = journal.select().order_by(journal.c.entry_id.desc()).limit(len(ROUTES) + 1)
        kept = [dict(row) for row in store.rows(newest)]
    assert {row["question"] for row in kept} == {query}
    return [*said, page["assessment"], page["answer"], *kept]


def from_python(model: CalibratedReranker, query: str) -> list[dict[str, Any]]:
    """What the functions say."""
    found = model.search(query)
    (answered,) = answering.answer(model, [Query(query)])
    verdict = context.gate(found)
    assert verdict.verdict == found.verdict
    assert (verdict.note() == "") == (verdict.verdict == "SUFFICIENT")
    steps = (
        take(found),
        explain(model, found),
        advisory.decide(found, record=lambda _: None),
        answered,
    )
    return [found.to_dict(), *(one.to_dict() for one in steps)]


@given(t=thresholds(), which=st.integers(0, 11))
@settings(max_examples=12, deadline=None)
def test_all_surfaces_agree(served: Served, queries: list[str], t: Thresholds, which: int) -> None:
    """On the confidence, the level, the verdict, and whether a person must look at it."""
    model, query = served.model, queries[which]
    usual = model.pipeline.config
    try:
        model.pipeline.config = replace(usual, thresholds=t)
        sure = model.search(query).confidence
        records = from_python(model, query) + from_http(served, query) + from_tools(model, query)
    finally:
        model.pipeline.config = usual
    given_to_each = advisory.decide(model.search(query), t, record=lambda _: None)
    for record in [*records, given_to_each.to_dict()]:
        assert record["confidence"] == sure
        assert record["level"] == t.level(sure)
        assert record.get("accepted", t.accepts(sure)) == t.accepts(sure)
        assert record.get("flagged", not t.accepts(sure)) == (not t.accepts(sure))
        if "verdict" in record:
            nothing = record.get("k") == 0 or (record.get("refused") and not record["sufficiency"])
            expected = "INSUFFICIENT" if nothing else t.verdict(record["sufficiency"])
            assert record["verdict"] == expected


def test_a_key_of_an_answer_means_one_thing(served: Served, queries: list[str]) -> None:
    """Every key that Python, HTTP or MCP uses is described, and as everywhere else."""
    records = from_python(served.model, queries[0]) + from_tools(served.model, queries[0])
    assert {key for record in records for key in record} <= set(JSON_KEYS)
    schemas: Mapping[str, Any] = served.client.get("/openapi.json").json()["components"]["schemas"]
    answers = {name: s["properties"] for name, s in schemas.items() if name.endswith("Response")}
    assert len(answers) >= 5
    del answers["ErrorResponse"]
    answers["SearchResult"] = schemas["SearchResult"]["properties"]
    for name, properties in answers.items():
        for key, described in properties.items():
            told = JSON_KEYS.get(key, described.get("description"))
            assert described.get("description") == told, f"{name}.{key}"
            assert told, f"{name}.{key} is not described"

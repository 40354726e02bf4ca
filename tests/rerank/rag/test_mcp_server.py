"""The tools of the Model Context Protocol, called by the official client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from assessments import make_assessment

from calibration.maps import LogisticMap
from calibration.recalibration import Segments
from rerank.advice.adaptive import search, take
from rerank.advice.explanation import explain
from rerank.advice.settings import Strategy
from rerank.assessment.fitted_maps import MapsByMode
from rerank.assessment.model import CalibratedReranker
from rerank.config import Thresholds
from rerank.errors import InputError

mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")


def called(model: CalibratedReranker, tool: str, **arguments: Any) -> Any:
    """What the client gets of a tool."""
    from rerank.rag.mcp_server import mcp_server

    async def ask() -> Any:
        async with mcp.Client(mcp_server(model)) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(ask())


def test_the_tools_are_described(model: CalibratedReranker) -> None:
    """Each with words that tell a language model when to use it."""
    from rerank.rag.mcp_server import mcp_server

    async def ask() -> Any:
        async with mcp.Client(mcp_server(model)) as client:
            return await client.list_tools()

    tools = {tool.name: tool.description for tool in asyncio.run(ask()).tools}
    assert set(tools) == {"search", "explain", "assess_retrieval_confidence"}
    assert all(text and "\n  " not in text for text in tools.values()), "indented as in the code"


def test_search_gives_what_python_gives(model: CalibratedReranker, questions: list[str]) -> None:
    """Passages, count, confidence and stop reason, with the verdict on them."""
    found = called(model, "search", query=questions[0], max_k=3)
    assert not found.is_error
    told = found.structured_content
    expected = search(model, questions[0], Strategy(max_k=3)).to_dict()
    assert {key: told[key] for key in expected} == expected
    assert told["verdict"] in {"SUFFICIENT", "PARTIAL", "INSUFFICIENT"}
    assert (told["note"] == "") == (told["verdict"] == "SUFFICIENT")


def test_the_verdict_is_by_the_thresholds_of_the_model(
    model: CalibratedReranker, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No passages that the model itself calls insufficient are called sufficient by a tool."""
    strict = Thresholds(medium=0.95, high=0.95, sufficient=0.95, partial=0.9)
    monkeypatch.setattr(model.pipeline, "config", replace(model.pipeline.config, thresholds=strict))
    unsure = make_assessment(confidence=0.85, texts=["The only passage."], thresholds=strict)
    monkeypatch.setattr(model, "search", lambda *_, **__: unsure)
    found = called(model, "search", query=questions[0], max_k=1).structured_content
    assert (found["stop_reason"], found["verdict"]) == ("max_k", "INSUFFICIENT")


def test_a_segment_is_passed_on(
    model: CalibratedReranker, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tools give the confidence of the segment, and the client is told the segments."""
    from rerank.rag.mcp_server import mcp_server

    maps = dict(model.maps)
    search_maps = replace(
        maps["search"], segments=Segments({"German": LogisticMap((1.0,), -2.0, (0.0,), (1.0,))})
    )
    config = replace(model.pipeline.config, segment_by="language")
    monkeypatch.setattr(model, "maps", MapsByMode({**maps, "search": search_maps}))
    monkeypatch.setattr(model.pipeline, "config", config)
    assert "Segments (language): German." in mcp_server(model).instructions
    expected = model.search(questions[0], metadata={"language": "German"})
    assert expected.confidence < model.search(questions[0]).confidence
    found = called(model, "assess_retrieval_confidence", query=questions[0], segment="German")
    assert found.structured_content == explain(model, expected).to_dict()
    found = called(model, "search", query=questions[0], segment="German").structured_content
    assert found["confidence"] == expected.confidence
    assert found["sufficiency"] == take(expected).sufficiency


def test_a_filter_is_as_in_python(
    model: CalibratedReranker, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tools pass it on as it came; a key that no passage has is told."""
    wrong = called(model, "search", query=questions[0], filter={"year": 2020})
    assert wrong.is_error
    with pytest.raises(InputError, match="year") as raised:
        model.search(questions[0], where={"year": 2020})
    assert wrong.content[0].text.endswith(str(raised.value))
    filters = [None, {"source": ["manual", "faq"]}, {"year": {"gte": 2020, "lt": 2024}}]
    asked: list[Any] = []
    found = model.search(questions[0])
    monkeypatch.setattr(model, "search", lambda _, **said: asked.append(said["where"]) or found)
    for tool in ("search", "explain"):
        for given in filters:
            assert not called(model, tool, query=questions[0], filter=given).is_error
    assert asked == filters * 2


def test_no_passage_is_never_sufficient(
    model: CalibratedReranker, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is on what is handed on, however sure the model is of its first passage."""
    far = make_assessment(confidence=0.9, texts=["No passage is similar."], dense=[0.1])
    monkeypatch.setattr(model, "search", lambda *_, **__: far)
    told = called(model, "search", query=questions[0]).structured_content
    assert (told["k"], told["stop_reason"]) == (0, "no_results")
    assert (told["verdict"], told["sufficiency"]) == ("INSUFFICIENT", 0.0)
    assert told["note"] == "[CONTEXT WARNING: No passage fits the question. Confidence: 0%.]"


def test_assessment_gives_what_python_gives(
    model: CalibratedReranker, questions: list[str]
) -> None:
    """Headline, signals, recommendations."""
    found = called(model, "explain", query=questions[0])
    expected = explain(model, model.search(questions[0])).to_dict()
    assert found.structured_content == expected


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"query": " "}, "the query is empty; expected some words"),
        ({"query": "x", "min_k": 5, "max_k": 2}, "expected `min_k` <= `max_k`, got 5 and 2"),
        ({"query": "x" * 10_001}, "'query' has 10001 characters, at most 10000 are taken"),
        ({"query": 5}, "'query' should be text, got a whole number"),
        ({"query": None}, "'query' should be text, got null"),
        ({}, "'query' is missing"),
        ({"query": "x", "maxk": 3}, "unknown argument 'maxk'; did you mean 'max_k'?"),
        (
            {"query": "x", "language": "en"},
            "unknown argument 'language'; the arguments are query, min_k, max_k, segment, filter",
        ),
        (
            {"query": "x", "segment": "German"},
            "the model has no segments, so none is called 'German'; calibrate it with --segment-by",
        ),
        (
            {"query": "x", "filter": {"year": {"from": 2020}}},
            "filter 'year' has 'from'; expected ['gt', 'gte', 'lt', 'lte']",
        ),
        (
            {"query": "x", "min_k": "many"},
            "'min_k': Input should be a valid integer, unable to parse string as an integer",
        ),
    ],
)
def test_bad_input_is_told(model: CalibratedReranker, wrong: dict[str, Any], sentence: str) -> None:
    """As an error of the tool, with the sentence, so that a language model can call it better."""
    found = called(model, "search", **wrong)
    assert found.is_error
    assert found.content[0].text.endswith(sentence)

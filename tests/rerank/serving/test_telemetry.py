"""What the server tells of itself: metrics that count, logs without text, an alarm for drift."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest
from http_checks import metric
from server import serving

from calibration.drift import alarm
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.ranking_features import ranking_features
from rerank.serving.telemetry import LOGGERS, JsonLines, OnceAMinute, log_to_stderr

WINDOW = 10


def test_metrics_count(client: httpx.Client, queries: list[str]) -> None:
    """An answer is counted by route, mode and level, and its stages are timed."""
    level = client.post("/v1/search", json={"query": queries[0]}).json()["level"]
    names = {
        "rerank_requests_total": {"route": "/v1/search", "status": "200"},
        "rerank_request_seconds_count": {"route": "/v1/search"},
        "rerank_assessments_total": {"mode": "search", "level": level},
        "rerank_confidence_count": {"mode": "search"},
        **{f"rerank_stage_seconds_count {s}": {"stage": s} for s in ("queue", "total")},
    }
    rounds = {
        "rerank_batch_size_count": {},
        **{f"rerank_stage_seconds_count {s}": {"stage": s} for s in ("encode", "score")},
    }

    def counted(some: dict[str, dict[str, str]]) -> dict[str, float]:
        return {name: metric(client, name.split()[0], **labels) for name, labels in some.items()}

    before, worked = counted(names), counted(rounds)
    client.post("/v1/search", json={"query": queries[0]})
    assert counted(names) == {name: value + 1 for name, value in before.items()}
    assert all(value > worked[name] for name, value in counted(rounds).items())


def test_refusals_count(client: httpx.Client) -> None:
    """A refusal is counted by its reason, and by its route and status."""
    for _ in range(2):
        assert client.post("/v1/search", json={"quary": "x"}).status_code == 422
    assert metric(client, "rerank_requests_refused_total", reason="input") == 2
    assert metric(client, "rerank_requests_total", route="/v1/search", status="422") == 2


@pytest.mark.parametrize("route", ["/v1/search", "/v1/ask", "/v1/feedback"])
def test_a_request_refused_before_its_route_is_found_counts_there(
    client: httpx.Client, route: str
) -> None:
    """Whichever module the route comes from; a path that is no route counts under `other`."""
    for path, counted in ((route, route), ("/nowhere", "other")):
        counts = []
        for _ in range(2):
            assert client.post(path, content=b"x").status_code == 415
            counts.append(metric(client, "rerank_requests_total", route=counted, status="415"))
        assert counts[1] == counts[0] + 1


def test_drift_alarm(run: Any, model: CalibratedReranker, queries: list[str]) -> None:
    """A whole window of searches is judged as the drift alarm judges their features."""
    strange = [f"xyzzy {q[:5]} qqq {i}" for i, q in enumerate(queries)][:WINDOW]
    found = [model.search(q).ranking for q in strange]
    expected = alarm(model.sketch, ranking_features(found), level=0.5)
    with (
        serving(run.folder, drift_window=WINDOW, drift_level=0.5) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        assert metric(client, "rerank_drift_p_value") == 1
        for q in strange:
            client.post("/v1/search", json={"query": q})
        client.post("/v1/rerank", json={"query": "after the window", "documents": ["a"]})
        assert metric(client, "rerank_drift_p_value") == pytest.approx(expected.p_value)
        assert metric(client, "rerank_drift_alarm") == expected.fired == 1
        assert metric(client, "rerank_drift_windows_total", alarm="yes") == 1


def test_a_log_line_is_json_and_quotes_no_exception() -> None:
    """Fields come as they are; of an exception the type and the place, not the message."""
    try:
        raise ValueError("the text of a request")
    except ValueError as error:
        caught = (type(error), error, error.__traceback__)
    record = logging.LogRecord("rerank", logging.ERROR, "", 1, "request failed", (), caught)
    record.fields = {"id": "7"}
    found = json.loads(JsonLines().format(record))
    assert (found["event"], found["severity"], found["id"]) == ("request failed", "error", "7")
    assert found["error"] == "ValueError"
    assert "test_telemetry.py" in found["at"][0]
    assert "text of a request" not in json.dumps(found)


def test_a_repeated_line_is_written_once_a_minute() -> None:
    """Our own events always are."""
    now = [0.0]
    lines = OnceAMinute(clock=lambda: now[0])

    def line(name: str, message: str) -> logging.LogRecord:
        return logging.LogRecord(name, logging.ERROR, "f.py", 1, message, (), None)

    full = "socket.accept() out of system resource\nsocket: fd={}"
    assert [lines.filter(line("asyncio", full.format(i))) for i in range(4)] == [True] + 3 * [False]
    assert lines.filter(line("uvicorn.error", "Exceeded concurrency limit."))
    assert all(lines.filter(line("rerank.serving", "request")) for _ in range(3))
    now[0] = 61.0
    assert lines.filter(line("asyncio", full.format(9)))
    for i in range(1000):
        assert lines.filter(line("other", f"{i} is another line"))
    assert len(lines._passed) <= 100


def test_too_many_connections_do_not_fill_the_log(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the HTTP server says of each connection too many stands in the log once."""
    monkeypatch.setattr("rerank.serving.server.CONNECTIONS", 1)
    for name in LOGGERS:  # put back when the test ends
        known = logging.getLogger(name)
        for field in ("handlers", "level", "propagate"):
            monkeypatch.setattr(known, field, getattr(known, field))
    with serving(run.folder) as started:
        log_to_stderr()
        answers = [httpx.get(f"{started.url}/healthz", timeout=600).status_code for _ in range(5)]
    assert answers == [503] * 5
    assert capsys.readouterr().err.count("Exceeded concurrency") == 1

"""A server with a journal: what it writes, feedback, and that answers go on when it dies."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from http_checks import assert_refused, metric
from journals import make_entry, sqlite_url
from server import serving

from calibration.drift import alarm
from rerank.assessment.model import CalibratedReranker
from rerank.config import Config
from rerank.data.feedback import read_feedback
from rerank.errors import InputError, JournalError
from rerank.journal import server as journaling
from rerank.journal.journal import Journal
from rerank.journal.server import (
    LEFT_OUT,
    WAITING,
    JournalAccess,
    check_journal,
    watch_data,
)
from rerank.serving.refusals import Refusal
from rerank.serving.settings import Settings
from rerank.types import Query

Run = Any  # the session's run, see conftest


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The journal by answer, read by SQLite alone."""
    with closing(sqlite3.connect(folder / "journal.db")) as plain:
        plain.row_factory = sqlite3.Row
        found = plain.execute("SELECT * FROM rerank_journal ORDER BY entry_id").fetchall()
    return {row["answer_id"]: dict(row) for row in found}


@pytest.fixture(scope="module")
def model(opened: CalibratedReranker) -> CalibratedReranker:
    """The model that is served, in this process."""
    return opened


@pytest.fixture
def asking(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of a server that keeps a journal in `tmp_path`, and waits for no lock."""
    monkeypatch.setattr("rerank.journal.store.PATIENCE", 0)
    monkeypatch.setattr("rerank.journal.journal.FLUSH", 1.0)
    monkeypatch.setattr("rerank.journal.journal.PAUSES", (0.05, 0.05))
    with (
        serving(run.folder, journal=sqlite_url(tmp_path)) as started,
        httpx.Client(base_url=started.url, timeout=600) as made,
    ):
        yield made


def test_every_assessed_question_is_written(run: Run, tmp_path: Path, queries: list[str]) -> None:
    """Of each route, with what was answered; all of it is there when the server has ended."""
    bodies: dict[str, dict[str, Any]] = {
        "search": {"query": queries[0]},
        "rerank": {"query": queries[1], "documents": ["a", {"title": "T", "text": "b"}]},
        "retrieve": {"query": queries[2]},
        "explain": {"query": queries[3]},
        "answer": {"query": queries[4]},
        "ask": {"query": queries[5]},
    }
    with serving(run.folder, journal=sqlite_url(tmp_path)) as started:
        answers = {
            route: httpx.post(f"{started.url}/v1/{route}", json=body, timeout=600).json()
            for route, body in bodies.items()
        }
        bad = httpx.post(f"{started.url}/v1/search", json={"query": " "}, timeout=600)
        assert bad.status_code == 422
    found = rows(tmp_path)
    assert list(found) == [answer["id"] for answer in answers.values()]
    for route, answer in answers.items():
        row = found[answer["id"]]
        assert row["question"] == bodies[route]["query"]
        assert row["model"] == answer["model"]
        assert row["latency"] > 0
    search = answers["search"]
    row = found[search["id"]]
    kept = [
        {k: p[k] for k in ("doc_id", "logit", "relevance", "bm25", "dense")}
        for p in search["ranking"][:10]
    ]
    assert json.loads(row["passages"]) == kept
    assert (row["confidence"], row["level"], row["verdict"], bool(row["accepted"])) == tuple(
        search[k] for k in ("confidence", "level", "verdict", "accepted")
    )
    assert row["answer"] is None
    brought = json.loads(found[answers["rerank"]["id"]]["asked"])["passages"]
    assert [(p["title"], p["text"]) for p in brought] == [("", "a"), ("T", "b")]
    told = found[answers["answer"]["id"]]
    assert told["answer"] == answers["answer"]["answer"]
    assert told["attribution"] == answers["answer"]["attribution_coverage"]
    page = found[answers["ask"]["id"]]  # which asks whether the first passage is right
    assert (page["mode"], page["answer"], page["answer_hash"]) == ("search", None, None)


def test_feedback_is_recorded_at_once(asking: httpx.Client, tmp_path: Path) -> None:
    """By the id of the caller, here of a load balancer; unknown ids and fields are refused."""
    own = {"x-request-id": "Root=1-5759e988-bd862e3fe1be46a994272793"}
    answer = asking.post("/v1/search", json={"query": "median"}, headers=own).json()
    assert answer["id"] == own["x-request-id"]
    for right in (True, False, False):
        given = {"id": answer["id"], "right": right, "comment": "said"}
        told = asking.post("/v1/feedback", json=given)
        assert told.json() == {"id": answer["id"], "right": right}
    row = rows(tmp_path)[answer["id"]]
    assert (row["right"], row["comment"]) == (0, "said")
    assert_refused(
        asking.post("/v1/feedback", json={"id": "none", "right": True}), 404, "no answer 'none'"
    )
    nothing = asking.post("/v1/rerank", json={"query": "median", "documents": []}).json()
    given = {"id": nothing["id"], "right": True}
    assert_refused(asking.post("/v1/feedback", json=given), 422, "no passage was found")
    for wrong in (
        {"id": "a"},
        {"id": "a", "right": "yes"},
        {"id": "a", "right": True, "x": 1},
        {"id": "a\0", "right": True},  # no database would take it
    ):
        assert asking.post("/v1/feedback", json=wrong).status_code == 422
    refused = asking.post("/v1/feedback", json={"id": "none", "right": True, "coment": "why"})
    assert_refused(refused, 422, "unknown field 'coment'; did you mean 'comment'?")
    example = asking.get("/openapi.json").json()["components"]["schemas"]["FeedbackRequest"]
    assert set(example["examples"][0]) == {"id", "right"}


def test_answers_go_on_when_the_database_dies(asking: httpx.Client, tmp_path: Path) -> None:
    """What cannot be written waits and is counted; feedback says that it cannot be written."""
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = asking.post("/v1/search", json={"query": "median"})
        assert answer.status_code == 200
        refused = asking.post("/v1/feedback", json={"id": answer.json()["id"], "right": True})
        assert_refused(refused, 503, "cannot be written")
        assert refused.headers["retry-after"]
        assert metric(asking, "rerank_journal_waiting") == 1
        other.execute("ROLLBACK")
    given = {"id": answer.json()["id"], "right": True}
    while asking.post("/v1/feedback", json=given).status_code != 200:
        pass  # the writer tries again in its own time
    assert metric(asking, "rerank_journal_entries_total", outcome="written") == 1
    assert metric(asking, "rerank_journal_failures_total") >= 1


def test_a_locked_database_keeps_nobody_out(run: Run, tmp_path: Path) -> None:
    """Feedback that waits for it takes no place in the queue, and too much of it is refused."""
    with (
        serving(run.folder, journal=sqlite_url(tmp_path), queue=2) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
        closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other,
    ):
        answer = client.post("/v1/search", json={"query": "median"}).json()
        other.execute("BEGIN EXCLUSIVE")
        given = {"id": answer["id"], "right": True}
        with ThreadPoolExecutor(WAITING + 8) as people:
            asked = [
                people.submit(httpx.post, f"{started.url}/v1/feedback", json=given, timeout=600)
                for _ in range(WAITING + 8)
            ]
            assert client.post("/v1/search", json={"query": "mean"}).status_code == 200
            assert next(as_completed(asked)).result().status_code == 503
            other.execute("ROLLBACK")
            assert {one.result().status_code for one in asked} <= {200, 503}


def test_a_database_that_is_slow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time limit, and what to do; too many who wait are told at once."""
    over, journal = threading.Event(), cast(Journal, object())

    async def ask() -> None:
        access = JournalAccess(journal, 0.05)
        try:
            with pytest.raises(Refusal) as late:
                await access("it cannot be read", lambda _: over.wait(600), hint="do it again")
            assert late.value.sentence == (
                "the journal did not answer within 0.05 seconds; try again in 5 seconds; "
                "do it again"
            )
            monkeypatch.setattr(journaling, "WAITING", 1)
            with pytest.raises(Refusal) as full:
                await access("it cannot be read", lambda _: None)
            assert full.value.sentence == (
                "1 requests already wait for the journal; try again in 5 seconds"
            )
        finally:
            over.set()
            access.close()

    asyncio.run(ask())


def test_the_page_is_about_the_served_model(tmp_path: Path) -> None:
    """Also its alarm, although another model has answered last."""
    with Journal(sqlite_url(tmp_path)) as journal:
        journal.store.add([make_entry(f"{i}", question_hash=f"{i}") for i in range(40)])
        for i in range(40):
            journal.judge(f"{i}", right=False)
        journal.store.add([make_entry("new", model="m2")])
        pipeline = SimpleNamespace(config=Config())
        for version, alarmed in (("m1", True), ("m2", False)):
            model = SimpleNamespace(calibrated=True, pipeline=pipeline)
            served: Any = SimpleNamespace(version=version, sketch=None, model=model)
            found = watch_data(journal, Settings(), 30, served)
            assert (found["model"], found["alarm"]) == (version, alarmed)


def test_without_text(run: Run, tmp_path: Path) -> None:
    """The switch reaches the journal: no word of the question is in the database."""
    settings = {"journal": sqlite_url(tmp_path), "journal_without_text": True}
    with serving(run.folder, **settings) as started:
        asked = {"query": "xylophone zymurgy"}
        assert httpx.post(f"{started.url}/v1/search", json=asked, timeout=600).status_code == 200
    assert len(rows(tmp_path)) == 1
    assert not any(b"xylophone" in path.read_bytes() for path in tmp_path.iterdir())


def test_labels_without_text_are_counted(run: Run, tmp_path: Path) -> None:
    """In a header; if none has a text, the refusal says so."""
    for without_text in (True, False):
        settings = {"journal": sqlite_url(tmp_path), "journal_without_text": without_text}
        with (
            serving(run.folder, **settings) as started,
            httpx.Client(base_url=started.url, timeout=600) as client,
        ):
            asked = {"query": f"median {without_text}"}
            answer = client.post("/v1/search", json=asked).json()
            given = {"id": answer["id"], "right": True}
            assert client.post("/v1/feedback", json=given).status_code == 200
            labels = client.get("/v1/journal/labels")
        if without_text:
            assert_refused(labels, 404, "no text of the questions of 1 judged answers")
        else:
            assert labels.headers[LEFT_OUT] == "1"
            assert len(labels.text.splitlines()) == 1


def test_without_a_journal_feedback_says_so(client: httpx.Client) -> None:
    """And how to have one."""
    told = client.post("/v1/feedback", json={"id": "a", "right": True})
    assert_refused(told, 404, "--journal")


def test_a_journal_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    """Before a model is loaded."""
    check_journal(Settings())
    with pytest.raises(InputError, match="expected sqlite"):
        check_journal(Settings(journal="journal.db"))
    with pytest.raises(JournalError, match="unable to open"):
        check_journal(Settings(journal=sqlite_url(tmp_path / "none")))


def test_the_drift_alarm_reads_the_journal(
    run: Run, tmp_path: Path, model: CalibratedReranker, queries: list[str]
) -> None:
    """As the drift alarm judges the same questions; also after a restart, and without their text.

    A question that is asked again is no new evidence.
    """
    strange = [f"xyzzy {q[:5]} qqq {i}" for i, q in enumerate(queries)]
    asked = [*strange, strange[0]]
    found = [answer.features for answer in model.assess([Query(text) for text in asked])]
    settings = {"journal": sqlite_url(tmp_path), "journal_without_text": True, "drift_level": 0.5}
    with serving(run.folder, **settings) as started:
        assert httpx.get(f"{started.url}/v1/journal", timeout=600).json()["drift"] is None
        for text in asked:
            httpx.post(f"{started.url}/v1/search", json={"query": text}, timeout=600)
    with serving(run.folder, **settings) as started:
        brought = {"query": "not a search", "documents": ["a", "b"]}
        httpx.post(f"{started.url}/v1/rerank", json=brought, timeout=600)
        told = httpx.get(f"{started.url}/v1/journal", timeout=600).json()["drift"]
    expected = alarm(model.sketch, found, level=0.5, groups=asked)
    assert (told["fired"], told["sentence"]) == (True, expected.sentence)
    assert told["p_value"] == pytest.approx(expected.p_value)
    assert (told["new_rows"], told["m"]) == (len(asked), expected.m)
    assert expected.m < len(asked)
    assert told["moves"][0]["name"] == expected.moves[0].name
    assert told["moves"][0]["meaning"]
    few = {**settings, "drift_window": 10}
    with serving(run.folder, **few) as started:
        told = httpx.get(f"{started.url}/v1/journal", timeout=600).json()["drift"]
    assert told["new_rows"] == 10
    expected = alarm(model.sketch, found[-10:], level=0.5, groups=asked[-10:])
    assert told["sentence"] == expected.sentence


def test_the_journal_is_watched_judged_and_exported(asking: httpx.Client, tmp_path: Path) -> None:
    """What waits for a word is listed; what was said leaves as labels that can be read again."""
    none = asking.get("/v1/journal/labels")
    assert_refused(none, 404, "nobody has judged a first passage of the served model yet")
    before = asking.get("/v1/journal").json()
    assert (before["by_day"], before["calibrated"]) == ([], True)
    sure, unsure = (
        asking.post("/v1/search", json={"query": text}).json()
        for text in ("median of an array", "<script>alert(1)</script> bread")
    )
    told = asking.get("/v1/journal", params={"days": 1}).json()
    assert sum(day["questions"] for day in told["by_day"]) == 2
    waits = [a["id"] for a in (unsure, sure) if not a["accepted"]]
    assert [row["id"] for row in told["waiting"]] == waits
    assert asking.post("/v1/feedback", json={"id": unsure["id"], "right": False}).status_code == 200
    _, calibrated = asking.get("/v1/journal").json()["monitors"]
    assert (calibrated["n"], calibrated["alarm"]) == (1, False)
    assert calibrated["sentence"].startswith("No alarm after 1 label:")
    labels = asking.get("/v1/journal/labels")
    assert labels.headers["content-type"].startswith("application/x-ndjson")
    assert labels.headers[LEFT_OUT] == "0"
    (tmp_path / "labels.jsonl").write_bytes(labels.content)
    (label,) = read_feedback(tmp_path / "labels.jsonl")
    assert (label.query.text, label.right) == ("<script>alert(1)</script> bread", False)
    assert label.chosen
    assert label.top == unsure["ranking"][0]["doc_id"]
    assert asking.get("/v1/journal", params={"days": 0}).status_code == 422

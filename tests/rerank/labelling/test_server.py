"""Labels over HTTP: ten questions, undone and refused, by two people; the folder is a set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.labelling.judgements import LabelConfig
from rerank.labelling.server import LabelRequest, LabelSessions
from rerank.labelling.session import Session


@pytest.fixture(scope="module")
def model(opened: CalibratedReranker) -> CalibratedReranker:
    """The model that is served, in this process."""
    return opened


@pytest.fixture
def folder(small: LabelledSet, model: CalibratedReranker, tmp_path: Path) -> Path:
    """A folder of labels with ten questions drawn."""
    out = tmp_path / "labels"
    queries = [small.queries[i] for i in small.splits["test"]]
    Session(model, out, LabelConfig(count=10, depth=2)).prepare(queries)
    return out


@pytest.fixture
def labelling(run: Any, folder: Path) -> Iterator[httpx.Client]:
    """A client of a server that takes labels."""
    labels = LabelSessions(folder, LabelConfig(count=10, depth=2))
    with (
        serving(run.folder, labels=labels) as started,
        httpx.Client(base_url=started.url, timeout=600) as made,
    ):
        yield made


def said(client: httpx.Client, asked: dict[str, Any], do: str, by: str = "ann") -> dict[str, Any]:
    """What is asked after a judgement of what is asked now."""
    task = asked["task"]
    body = {"annotator": by, "do": do, "query_id": task["query_id"], "doc_id": task["doc_id"]}
    answer = client.post("/v1/label", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_ten_labels_become_a_set(labelling: httpx.Client, folder: Path) -> None:
    """Each judgement is kept at once; what is told so far has its interval after the first."""
    asked = labelling.get("/v1/label", params={"annotator": "ann"}).json()
    assert (asked["labelled"], asked["questions"], asked["so_far"]) == (0, 10, [])
    assert asked["task"]["text"]
    first = asked["task"]["query_id"]
    right = asked["task"]["doc_id"]
    asked = said(labelling, asked, "right")
    for _ in range(10):
        if asked["task"]["query_id"] != first and asked["labelled"] == 0:
            break
        asked = said(labelling, asked, "nothing")
        if asked["task"] is None:
            break
    assert asked["labelled"] == 10
    assert asked["task"] is None
    assert "95% interval" in asked["so_far"][0]
    kept = LabelledSet.read(folder)
    assert len(kept.split("test")) == 10
    assert right in kept.qrels[first]
    undone = labelling.post("/v1/label", json={"annotator": "ann", "do": "undo"}).json()
    assert undone["labelled"] == 9
    assert len(LabelledSet.read(folder).split("test")) == 9


def test_two_people_and_two_windows(labelling: httpx.Client) -> None:
    """The first question is for both; what is not asked any more is refused and changes nothing."""
    ann = labelling.get("/v1/label", params={"annotator": "ann"}).json()
    bob = labelling.get("/v1/label", params={"annotator": "bob"}).json()
    assert ann["task"] == bob["task"]
    after = said(labelling, ann, "nothing")
    stale = {"annotator": "ann", "do": "right"} | {
        k: ann["task"][k] for k in ("query_id", "doc_id")
    }
    refused = labelling.post("/v1/label", json=stale)
    assert refused.status_code == 409
    assert "another window" in refused.json()["message"]
    assert labelling.get("/v1/label", params={"annotator": "ann"}).json() == after
    agreed = said(labelling, bob, "nothing", by="bob")["so_far"]
    assert any("ann and bob agree on 100%" in sentence for sentence in agreed)


def test_few_sessions_are_kept(
    folder: Path, model: CalibratedReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many names are given; a session that was dropped goes on where it was."""
    monkeypatch.setattr("rerank.labelling.server.SESSIONS", 2)
    labels = LabelSessions(folder, LabelConfig(count=10, depth=2))
    task = labels.asked("ann", model)["task"]
    given = {"annotator": "ann", "do": "nothing"}
    given |= {"query_id": task["query_id"], "doc_id": task["doc_id"]}
    labels.act(LabelRequest.model_validate(given), model)
    for name in ("bob", "cleo", "dan"):
        labels.asked(name, model)
    assert list(labels._sessions) == ["cleo", "dan"]
    assert labels.asked("ann", model)["labelled"] == 1


def test_what_is_no_judgement_is_refused(labelling: httpx.Client, client: httpx.Client) -> None:
    """In a sentence: an unknown word, no name, an accepted question; a server without labels."""
    asked = labelling.get("/v1/label", params={"annotator": "ann"}).json()
    task = {k: asked["task"][k] for k in ("query_id", "doc_id")}
    for body, part in (
        ({"annotator": "ann", "do": "maybe"}, "do"),
        (
            {"annotator": "", "do": "right"},
            "annotator should be a text of 1 or more characters, got 0",
        ),
        ({"annotator": "ann", "do": "accept", **task}, "does not fit what is asked now"),
    ):
        refused = labelling.post("/v1/label", json=body)
        assert refused.status_code == 422
        assert part in refused.json()["message"]
    nameless = labelling.get("/v1/label")
    assert nameless.status_code == 422
    assert nameless.json()["message"].startswith("the parameter `annotator` is missing")
    for without in (
        client.get("/v1/label", params={"annotator": "ann"}),
        client.get("/v1/label"),
        client.post("/v1/label", json={"annotator": "ann", "do": "right", **task}),
        client.post("/v1/label", json={"do": "maybe"}),
    ):
        assert without.status_code == 404
        assert "rerank label MODEL --out FOLDER --page" in without.json()["message"]


def test_an_unknown_question_or_passage_is_not_found(labelling: httpx.Client) -> None:
    """Only what was drawn may be asked about no more."""
    asked = labelling.get("/v1/label", params={"annotator": "ann"}).json()
    task = {k: asked["task"][k] for k in ("query_id", "doc_id")}
    for unknown, what in (({"query_id": "none"}, "question"), ({"doc_id": "none"}, "passage")):
        body = {"annotator": "ann", "do": "right", **task, **unknown}
        refused = labelling.post("/v1/label", json=body)
        assert refused.status_code == 404
        assert f"no such {what}" in refused.json()["message"]
    assert labelling.get("/v1/label", params={"annotator": "ann"}).json() == asked


def test_a_judgement_takes_no_key_twice(labelling: httpx.Client) -> None:
    """Readers differ in which of the two values counts."""
    sent = b'{"annotator": "ann", "do": "right", "do": "nothing"}'
    answer = labelling.post("/v1/label", content=sent, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "'do' twice in one object" in answer.json()["message"]

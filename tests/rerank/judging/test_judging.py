"""Judges over real HTTP: verdicts are kept, asked for once, bounded, and only labels certify."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call, refused
from llm_endpoint import Handler, endpoint, says
from remote_server import Server, running_server

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.evaluate import evaluate
from rerank.judging import BadVerdictError, probability_of, says_yes

Run = Any  # the session's run, see conftest
Draw = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def draw(run: Run, questions: Path, tmp_path: Path) -> Draw:
    """Draw questions to label beside a judge's verdicts; their lines."""

    def drawn(*judge: object, how: str = "accepted", count: int = 12) -> list[dict[str, Any]]:
        out = tmp_path / "next.jsonl"
        fixed = ["--out", out, "--work", tmp_path / "work", "--overwrite", "--next", "--draw", how]
        assert call("label", run.folder, questions, *fixed, "--count", count, *judge) == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    return drawn


def verdicts(folder: Path) -> list[dict[str, Any]]:
    """The lines of the one file of verdicts."""
    (path,) = (folder / "judged").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def server(tmp_path: Path) -> Any:
    """A decision model."""
    with running_server(tmp_path / "cache") as running:
        yield running


def test_from_unlabelled_questions_to_a_certificate(
    draw: Draw,
    server: Server,
    opened: CalibratedReranker,
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A decision model judges, people label what is drawn, and their labels alone certify."""
    judge = f"systemone+{server.url}"
    rows = draw("--judge", judge)
    judged = verdicts(tmp_path)
    assert {row["judge"] for row in judged} == {judge}
    assert {row["model"] for row in judged} == {server.model}
    assert all(0 <= row["says"] <= 1 and row["at"] and row["digest"] for row in judged)
    of = rows[0]["metadata"]["judged"]["of"]
    assert sum(of) == len(judged) == rows[0]["metadata"]["population"]
    assert of[3:] == [0, 0, 0]
    by_question = {row["question"]: row["says"] for row in judged}
    for row in rows:
        said = row["metadata"]["judged"]
        assert said["by"] == judge
        assert said["yes"] == (by_question[row["text"]] >= 0.5) == (said["stratum"] == 0)
        assert "weight" not in row["metadata"]
    assert f"requests to {judge}" in capsys.readouterr().err

    labels, out = tmp_path / "labels.jsonl", tmp_path / "certified"
    for right, holds in ((True, True), (False, False)):
        text = "".join(json.dumps({**row, "right": right}) + "\n" for row in rows)
        labels.write_text(text)
        given = ["--labels", labels, "--out", out, "--overwrite", "--work", tmp_path / "work"]
        assert call("recalibrate", run.folder, *given) == 0
        certificate = CalibratedReranker.load(out).maps.main.certificate
        assert certificate.judge == judge
        assert certificate.strata is not None
        assert certificate.strata.rows == tuple(of)
        assert 10 <= sum(certificate.strata.labelled) <= len(rows)  # one of each group
        assert (certificate.threshold is not None) == holds
        assert "The judge was worth" in capsys.readouterr().out

    mixed = [json.dumps({**row, "right": True}) for row in rows]
    other = {**rows[0], "right": True, "text": "another question"}
    del other["metadata"]["judged"]
    labels.write_text("\n".join([*mixed[1:], json.dumps(other)]))
    assert "and others evenly" in refused(capsys, "recalibrate", run.folder, *given)


def test_what_was_asked_is_not_asked_again(draw: Draw, server: Server, tmp_path: Path) -> None:
    """Not by a second run, nor after a kill that cut off the last line."""
    draw("--judge", f"systemone+{server.url}")
    (path,) = (tmp_path / "judged").glob("*.jsonl")
    before = path.read_bytes()
    sent = len(server.paid)
    draw("--judge", f"systemone+{server.url}")
    of_probe = len(server.paid) - sent
    assert path.read_bytes() == before
    path.write_bytes(before[:-20])
    sent = len(server.paid)
    draw("--judge", f"systemone+{server.url}")
    assert len(server.paid) - sent == of_probe  # the score is in the cache of scores
    assert len(verdicts(tmp_path)) == before.count(b"\n")


def number(handler: Handler, body: dict[str, Any]) -> None:
    """Reply with a number that depends on the question; to every fifth with something else."""
    text = body["messages"][1]["content"]
    place = sum(map(ord, text.partition("\n")[0])) % 5
    says(("95", "<think>Hm.</think> 80%", "yes", "12", "It depends.")[place])(handler, body)


def test_a_language_model_replies_with_a_number(
    draw: Draw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replies that are no verdict are counted and named; such questions are a stratum."""
    with endpoint(number) as chat:
        llm = ("--llm", chat.url, "--llm-model", "judge-1")
        rows = draw(*llm, how="accuracy", count=20)
        err = capsys.readouterr().err
        judged, sent = verdicts(tmp_path), len(chat.requests)
        assert sent > len(judged) > 0
        bad = sent - len(judged)
        assert f"it replies 'It depends.' ({bad})" in err
        assert f"{sent} requests to judge-1 at" in err
        assert {row["says"] for row in judged} == {0.95, 0.8, 1.0, 0.12}
        assert {row["model"] for row in judged} == {"judge-1"}
        strata = {row["metadata"]["judged"]["stratum"] for row in rows}
        assert len(strata) > 2
        of = rows[0]["metadata"]["judged"]["of"]
        assert sum(of) == sent
        assert of[2] + of[5] == bad
        assert sum(row["metadata"]["weight"] for row in rows) == pytest.approx(sent)
        assert all("Passage: " in r["messages"][1]["content"] for r in chat.requests)

        draw(*llm, how="accuracy", count=20)
        assert len(chat.requests) == sent + bad  # only what it has no verdict of


def test_requests_are_bounded_and_the_rest_comes_later(
    draw: Draw, run: Run, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was said before the limit is kept; in all, each question is asked about once."""
    with endpoint(says("70")) as chat:
        llm = ["--llm", chat.url, "--llm-model", "judge-1"]
        out = ["--next", "--out", tmp_path / "next.jsonl", "--count", 12, "--draw", "accuracy"]
        limited = [*llm, "--most-requests", 5, "--work", tmp_path / "work"]
        assert call("label", run.folder, questions, *out, *limited) == 3
        assert "5 were sent" in capsys.readouterr().err
        assert len(verdicts(tmp_path)) == len(chat.requests) == 5
        assert not (tmp_path / "next.jsonl").exists()
        rows = draw(*llm, how="accuracy")
        assert len(chat.requests) == sum(rows[0]["metadata"]["judged"]["of"])
        questions = [request["messages"][1]["content"] for request in chat.requests]
        assert len(questions) == len(set(questions))


def test_a_reranker_and_a_calibrated_model_judge(
    draw: Draw, server: Server, run: Run, opened: CalibratedReranker, tmp_path: Path
) -> None:
    """A score that is no probability says yes as often as the confidences expect to be right."""
    rows = draw("--judge", f"{server.url}/rerank")
    of = rows[0]["metadata"]["judged"]["of"]
    accepted = [a.confidence for a in opened.assess(_queries(tmp_path)) if a.accepted]
    assert of[0] / sum(of) == pytest.approx(np.mean(accepted), abs=1.5 / sum(of))
    rows = draw("--judge", run.folder)
    assert opened.version in rows[0]["metadata"]["judged"]["by"]


def test_a_labelled_set_with_a_judge_is_estimated(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """Of all questions, and of the accepted ones if this model drew them."""
    ids = small.splits["test"]
    accepted = [a.accepted for a in opened.assess([small.queries[i] for i in ids])]
    of = [400, 0, 0, 0, 600, 0]
    metadata = [
        {"judged": {"by": "big-1", "yes": a, "stratum": 0 if a else 4, "of": of}, "weight": 20.0}
        for a in accepted
    ]
    for version, count in ((opened.version, 2), ("another", 1)):
        drawn = {
            i: replace(small.queries[i], metadata={**m, "drawn_by": version})
            for i, m in zip(ids, metadata, strict=True)
        }
        labelled = replace(small, queries={**small.queries, **drawn})
        notes = evaluate(opened, labelled, "test", work=run.work).notes
        found = [one for one in notes if "with the judge big-1" in one]
        assert len(found) == count
        assert "what the judge says of 1,000 questions" in found[0]
        assert all("what the judge says of 400 questions" in one for one in found[1:])


def test_verdicts_are_shown_confirmed_and_remembered(
    run: Run,
    questions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only of the top passage, on request; a key confirms one, and what nobody judged has none."""
    out = tmp_path / "set"

    state, session, server = (
        pytest.importorskip(f"rerank.labelling.{name}") for name in ("state", "session", "server")
    )

    def judged(keys: str, *more: object) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(keys) + "\n"))
        fixed = ["label", run.folder, "--out", out, "--depth", 2, "--count", 4]
        assert call(*fixed, "--questions", questions, "--draw", "accuracy", *more) == 0
        return capsys.readouterr().out

    assert "says:" not in judged("q", "--judge", run.folder)
    lines = [json.loads(line) for line in (out / "judgements.jsonl").read_text().splitlines()]
    question = state.questions_of(lines)[0]
    config = state.LabelConfig(depth=2)
    task = session.Session(CalibratedReranker.load(run.folder), out, config).task()
    assert task
    before = next(i for i, p in enumerate(task.pool.shown) if question.top in p.doc_ids)
    said = "right" if question.metadata["judged"]["yes"] else "wrong"
    rest = "n" if before + 1 < len(task.pool.shown) else ""
    told = judged("w" * before + "c" + rest + "q", "--show-verdicts")
    assert f"says: {said}\nc confirm" in told
    events = [json.loads(line) for line in (out / "judgements.jsonl").read_text().splitlines()]
    seen = [e for e in events if e["do"] == "judge"]
    assert [e.get("shown", {}).get("says") for e in seen if "shown" in e] == [said]
    assert seen[before]["grade"] == said
    (kept,) = LabelledSet.read(out).queries.values()
    assert kept.metadata["verdict_shown"] is True
    assert set(LabelledSet.read(out).qrels) == ({kept.query_id} if said == "right" else set())

    config = state.LabelConfig(depth=2, show_verdicts=True)
    sessions = server.LabelSessions(out, config)
    model = CalibratedReranker.load(run.folder)
    found = sessions.asked("ada", model)["task"]
    while "judge" not in found:
        with pytest.raises(InputError, match="no verdict is shown"):
            sessions.act(request_of(found, "confirm"), model)
        found = sessions.act(request_of(found, "wrong"), model)["task"]
    assert found["verdict"] in {"right", "wrong"}
    sessions.act(request_of(found, "confirm"), model)
    last = json.loads((out / "judgements.jsonl").read_text().splitlines()[-1])
    assert (last["by"], last["grade"]) == ("ada", found["verdict"])
    assert last["shown"] == {"by": found["judge"], "says": found["verdict"]}


def request_of(task: dict[str, Any], do: Any) -> Any:
    """What ada says of a task."""
    request = pytest.importorskip("rerank.labelling.server").LabelRequest
    return request(annotator="ada", do=do, query_id=task["query_id"], doc_id=task["doc_id"])


def _queries(folder: Path) -> list[str]:
    return [
        json.loads(line)["text"] for line in (folder / "questions.jsonl").read_text().splitlines()
    ]


def test_what_no_judge_can_do_is_refused(
    run: Run, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is asked."""
    out = ["--out", tmp_path / "x.jsonl", "--work", tmp_path / "work", "--count", 12]
    both = ["--judge", run.folder, "--llm", "http://127.0.0.1:9/v1", "--llm-model", "m"]
    label = ["label", run.folder, questions, "--next", *out]
    assert "expected one judge" in refused(capsys, *label, *both)
    assert "not with a judge" in refused(capsys, *label, "--judge", run.folder, "--draw", "map")
    proposed = ["label", run.folder, "--out", tmp_path / "set", "--judge", run.folder]
    assert "add --questions FILE" in refused(capsys, *proposed)


@pytest.mark.parametrize(
    ("reply", "probability"),
    [
        *[("90", 0.9), ("100%", 1.0), ("**7**", 0.07), ("0.9", 0.9), ("1", 0.01), ("0", 0.0)],
        *[("Yes, it does.", 1.0), ("no", 0.0), ("1.0", 1.0), ("12.5", 0.125), ("85/100", 0.85)],
    ],
)
def test_a_reply_is_a_probability(reply: str, probability: float) -> None:
    """A number from 0 to 100, a decimal fraction, yes or no."""
    assert probability_of(reply) == pytest.approx(probability)


@pytest.mark.parametrize("reply", ["", "maybe", "101", "between 3 and 5", "yesterday"])
def test_any_other_reply_is_none(reply: str) -> None:
    """It is named."""
    with pytest.raises(BadVerdictError, match="it replies"):
        probability_of(reply)


def test_yes_by_probability_or_by_quantile() -> None:
    """No label is used, and what has no verdict stays without one."""
    numbers, confidence = np.array([3.0, -1.0, np.nan, 7.0, 5.0]), np.full(5, 0.75)
    assert says_yes(numbers, confidence, probability=False).tolist()[:2] == [1.0, 0.0]
    assert np.isnan(says_yes(numbers, confidence, probability=False)[2])
    assert says_yes(np.array([0.5, 0.4]), confidence[:2], probability=True).tolist() == [1.0, 0.0]
    assert np.isnan(says_yes(np.full(2, np.nan), confidence[:2], probability=True)).all()

"""`rerank watch feedback` and `rerank watch journal`; `recalibrate` and `drift` from a journal."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from assessments import make_assessment
from command_line import call, refused
from journals import make_entry, sqlite_url
from sqlalchemy import select

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.errors import JournalError
from rerank.journal.journal import Journal
from rerank.journal.reading import journal_labels, label_of, newest_labels
from rerank.journal.store import JOURNAL, Entry, JournalStore, entry_of
from rerank.serving.model_source import open_model
from rerank.types import Query

Run = Any  # the session's run, see conftest


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """A journal with one answer, `a`."""
    with JournalStore(sqlite_url(tmp_path), create=True) as store:
        store.add([make_entry("a")])
    return sqlite_url(tmp_path)


def test_feedback_is_recorded(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And stands in the report; only the alarm goes on reading the first judgement."""
    assert call("watch", "feedback", journal, "a", "right") == 0
    assert call("watch", "feedback", journal, "a", "wrong", "--comment", "of another version") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "recorded: a was wrong"
    assert call("watch", "journal", journal, "--json") == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["judged"], model["right"]) == (1, 0)
    assert call("watch", "journal", journal) == 0
    assert "1 of 1 accepted answers were right" in capsys.readouterr().out


def test_the_command_line_writes_what_a_server_writes(
    run: Run, small: LabelledSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the commands that read a journal read it; the ids that are printed take feedback."""
    texts = [q.text for q in list(small.queries.values())[:4]]
    journal, out = sqlite_url(tmp_path), tmp_path / "answers.jsonl"
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"_id": "q", "text": texts[3]}) + "\n")
    kept = ("--journal", journal)
    assert call("search", run.folder, texts[0], "--json", *kept) == 0
    assert call("search", "--explain", run.folder, texts[1], "--json", *kept) == 0
    searched, assessed = map(json.loads, capsys.readouterr().out.splitlines())
    assert call("answer", run.folder, texts[2], *kept, "--journal-without-text") == 0
    printed = capsys.readouterr().out.splitlines()
    (shown,) = (line.removeprefix("Answer id: ") for line in printed if "Answer id" in line)
    assert call("answer", run.folder, "--queries", queries, "--out", out, *kept) == 0
    answered = json.loads(out.read_text())
    ids = [searched["id"], assessed["id"], shown, answered["id"]]
    with JournalStore(journal) as store:
        rows = store.rows(select(JOURNAL).order_by(JOURNAL.c.entry_id))
    assert [row["answer_id"] for row in rows] == ids
    assert [row["question"] for row in rows] == [texts[0], texts[1], None, texts[3]]
    version = open_model(run.folder).version  # as a server names it
    assert all(row["model"] == version and row["latency"] > 0 for row in rows)
    assert rows[0]["confidence"] == searched["confidence"]
    assert (rows[0]["answer"], rows[3]["answer"]) == (None, answered["answer"])
    for answer_id in ids:
        assert call("watch", "feedback", journal, answer_id, "right") == 0
    labels, _ = journal_labels(CalibratedReranker.load(run.folder), journal)
    assert [label.query.text for label in labels] == texts[:2]  # the others are of answers
    capsys.readouterr()
    assert call("watch", "journal", journal, "--json") in (0, 1)
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["model"], model["questions"]) == (version, 4)


def test_the_questions_of_a_journal_are_drawn(
    run: Run,
    small: LabelledSet,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each that was searched once, by --next and at the terminal; another source is refused."""
    texts = [small.queries[i].text for i in small.splits["test"][:4]]
    kept = ("--journal", sqlite_url(tmp_path))
    model = CalibratedReranker.load(run.folder)
    with Journal(kept[1]) as journal:
        for text in [*texts, texts[0]]:
            journal.record(model.search(text), model=model.version)
    label = ("label", run.folder, "--count", "4", *kept, "--out")
    assert call(*label, tmp_path / "next.jsonl", "--next", "--draw", "map") == 0
    rows = [json.loads(line) for line in (tmp_path / "next.jsonl").read_text().splitlines()]
    assert sorted(row["text"] for row in rows) == sorted(texts)
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert call(*label, tmp_path / "set") == 0
    assert "4 questions are waiting" in capsys.readouterr().err
    assert "got both" in refused(capsys, *label, "x", "--questions", "asked.jsonl")


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "locked"])
def test_a_journal_that_fails_costs_no_answer(
    dead: bool,
    run: Run,
    small: LabelledSet,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence on stderr, and the answer with exit code 0."""
    monkeypatch.setattr("rerank.journal.store.PATIENCE", 0)
    monkeypatch.setattr("rerank.journal.journal.CLOSING", 0.1)
    JournalStore(sqlite_url(tmp_path), create=True).close()
    question = next(iter(small.queries.values())).text
    url = "sqlite:////dev/null/journal.db" if dead else sqlite_url(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert call("search", run.folder, question, "--journal", url) == 0
    told = capsys.readouterr()
    assert question in told.out
    (line,) = told.err.splitlines()
    assert line.startswith("rerank: not written to the journal: ")
    assert ("unable to open" if dead else "1 answered questions (the journal") in line


def test_labels_of_answers_become_their_confidence(
    run: Run, small: LabelledSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few labels, one outcome and no journal are refused; the newest word on a question counts."""
    journal, out = sqlite_url(tmp_path), tmp_path / "moved"
    version = CalibratedReranker.load(run.folder).version

    def entry(i: int) -> Entry:
        values = {"attribution": i % 2 * 0.8 + 0.1, "confidence": 0.2 + i / 80}
        made = {"decision": "answered", "answer_hash": f"{i}", "question_hash": f"{i}"}
        made["model"] = version
        return make_entry(str(i), entry_id=f"{i:06}", **made, **values)

    fitting = ("recalibrate", run.folder, "--journal", journal, "--answers", "--out", out)
    with JournalStore(journal, create=True) as store:
        store.add([entry(i) for i in range(40)])
        refusal = {"decision": "refused", "attribution": 0.0, "model": version}
        store.add([make_entry("no", entry_id="no", **refusal)])
        for i in range(20, 40):
            other = {"entry_id": f"other {i}", "answer_id": f"other {i}", "model": "another"}
            store.add([{**entry(i), **other}])
        for i in range(20):
            store.judge(str(i), i % 2 == 0)
            store.judge(f"other {20 + i}", i % 2 == 0)  # of another model: it does not count
        assert "expected 30 labelled answers" in refused(capsys, *fitting)
        for i in range(40):
            store.judge(str(i), True)
        store.judge("no", True)
        assert "got 40 of which 40 are right" in refused(capsys, *fitting)
        for i in range(0, 40, 2):  # those of low attribution
            store.judge(str(i), i % 8 == 0)
    alone = (*fitting[:2], "--answers", *fitting[-2:])
    for without in (alone, (*alone, "--labels=x")):
        assert "--answers takes" in refused(capsys, *without)
    both = refused(capsys, *fitting[:4], *fitting[-2:], "--labels=x")
    assert both.endswith("--journal; got both")
    assert call(*fitting) == 0
    assert "fitted on 40 labelled ones, of which 25 were right" in capsys.readouterr().out
    question = next(iter(small.queries.values())).text
    asked = (question, "--json", "--partial=0", "--min-score=0")
    assert call("answer", run.folder, *asked) == 0
    assert call("answer", out, *asked) == 0
    before, after = map(json.loads, capsys.readouterr().out.splitlines())
    assert "answer_confidence" not in before
    assert CalibratedReranker.load(out).manifest["answers"]["versions"] == [version]
    fitted = open_model(out).kept["rag"]
    assert fitted is not None
    found = CalibratedReranker.load(out).search(question).confidence
    own = fitted.confidence(found, after["attribution_coverage"])
    assert after["answer_confidence"] == pytest.approx(own)
    assert fitted.confidence(found, 0.1) < fitted.confidence(found, 0.9)


def test_a_journal_is_kept_from_python(tmp_path: Path) -> None:
    """Recorded, judged at once, closed; what could not be written is a warning."""
    found = make_assessment(confidence=0.8, texts=["a"])
    with Journal(sqlite_url(tmp_path)) as journal:
        answer_id = journal.record(found, model="m")
        assert journal.judge(answer_id, right=True)
        assert not journal.judge("other", right=True)
    with JournalStore(sqlite_url(tmp_path)) as store:
        (row,) = store.rows(select(JOURNAL))
    assert (row["answer_id"], row["right"], row["model"]) == (answer_id, True, "m")


def test_an_answer_that_is_not_written_yet_is_not_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer waits after a failure; feedback that is given again is recorded."""
    monkeypatch.setattr("rerank.journal.store.PATIENCE", 0)
    monkeypatch.setattr("rerank.journal.journal.PAUSES", (3.0, 3.0))
    with (
        Journal(sqlite_url(tmp_path)) as journal,
        closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        answer_id = journal.record(make_assessment(confidence=0.8, texts=["a"]), model="m")
        while not journal._failure:
            pass
        other.execute("ROLLBACK")
        with monkeypatch.context() as patch:
            patch.setattr("rerank.journal.journal.FLUSH", 0.01)
            with pytest.raises(JournalError, match="1 answers are not written yet; try again"):
                journal.judge(answer_id, right=True)
        monkeypatch.setattr("rerank.journal.journal.FLUSH", 60.0)
        assert journal.judge(answer_id, right=True)
        assert not journal.judge("none", right=True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("watch", "feedback", "{journal}", "none", "right"), "has no answer 'none'"),
        (("watch", "feedback", "{journal}.other", "a", "right"), "there is no journal at"),
        (
            ("watch", "feedback", "journal.db", "a", "right"),
            "expected sqlite:///PATH or postgresql://",
        ),
        (("watch", "journal", "postgresql://u:secret@127.0.0.1:1/x"), "cannot be used"),
        (("watch", "journal", "{journal}", "--target", "1"), "--target should be"),
        (("recalibrate", "model", "--out", "x"), "--journal"),
        (
            ("recalibrate", "m", "--journal", "j", "--answers", "--name", "x", "--out", "y"),
            "--name",
        ),
        (("watch", "drift", "model"), "--journal"),
        (("watch", "drift", "model", "q.jsonl", "--newest", "9"), "--newest: only with --journal"),
        (("label", "model", "--out", "x", "--newest", "9"), "--newest: only with --journal"),
        (("quickstart", "docs", "--no-serve", "--port", "1"), "--port: not with --no-serve"),
        (("label", "model", "--out", "labels", "--port", "1"), "--port: only with --page"),
        (("serve", "model", "--journal", "journal.db"), "not a URL of a journal"),
        (("search", "model", "a question", "--journal", "journal.db"), "not a URL of a journal"),
        (("serve", "model", "--journal", "sqlite:////dev/null/journal.db"), "unable to open"),
    ],
)
def test_what_cannot_be_used_is_refused(
    words: tuple[str, ...], sentence: str, journal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a sentence that shows no password, and exit code 2."""
    if "postgresql" in words[1]:
        pytest.importorskip("psycopg")
    told = refused(capsys, *(word.format(journal=journal) for word in words))
    assert sentence in told
    assert "secret" not in told


def test_a_locked_database_is_told(
    journal: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The word is not recorded; said again, it is."""
    monkeypatch.setattr("rerank.journal.store.PATIENCE", 0)
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "locked" in refused(capsys, "watch", "feedback", journal, "a", "right")
    other.execute("ROLLBACK")
    other.close()
    assert call("watch", "feedback", journal, "a", "right") == 0


def test_recalibrate_and_drift_take_a_journal(
    run: Run, small: LabelledSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest labels; searches for drift. The answers of the model are those of a server."""
    model = CalibratedReranker.load(run.folder)
    fresh = [f"{q.text} please" for q in list(small.queries.values())[:14]]
    with JournalStore(sqlite_url(tmp_path), create=True) as store:
        for i, found in enumerate(model.assess([Query(text) for text in fresh])):
            store.add([entry_of(found, answer_id=str(i), model="m", latency=0)])
            store.judge(str(i), i % 3 > 0)
        exported = "".join(f"{json.dumps(label_of(row))}\n" for row in newest_labels(store))
    moved, journal = tmp_path / "moved", sqlite_url(tmp_path)
    more = ("--work", tmp_path / "work")
    assert (
        call(
            "recalibrate",
            run.folder,
            "--journal",
            journal,
            "--out",
            moved,
            "--max-labels",
            12,
            *more,
        )
        == 0
    )
    manifest = json.loads((moved / "manifest.json").read_text())
    assert manifest["recalibrated"]["labels"] == 12
    certificate = CalibratedReranker.load(moved).maps["search"].certificate
    assert certificate.refused.startswith("The labels are not of a random sample")
    assert manifest["recalibrated"]["right"] == sum(i % 3 > 0 for i in range(2, 14))
    labels, same = tmp_path / "labels.jsonl", tmp_path / "same"
    labels.write_text(exported)
    assert call("recalibrate", run.folder, "--labels", labels, "--out", same, *more) == 0
    assert CalibratedReranker.load(same).maps["search"].certificate.refused == certificate.refused
    capsys.readouterr()
    assert call("watch", "drift", run.folder, "--journal", journal, "--json", *more) in (0, 1)
    assert json.loads(capsys.readouterr().out)["new_rows"] == 14

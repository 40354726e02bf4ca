"""`rerank feedback` and `rerank journal`; `recalibrate` and `drift` from a journal."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from command_line import call, refused
from journals import make_entry, sqlite_url

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.journal.entry import entry_of
from rerank.journal.store import JournalStore
from rerank.types import Query

Run = Any  # the session's run, see conftest


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """A journal with one answer, `a`."""
    with JournalStore(sqlite_url(tmp_path), create=True) as store:
        store.add([make_entry("a")])
    return sqlite_url(tmp_path)


def test_feedback_is_recorded(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And stands in the report."""
    assert call("feedback", journal, "a", "right") == 0
    assert call("feedback", journal, "a", "wrong", "--comment", "of another version") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "recorded: a was wrong"
    assert call("journal", journal, "--json") == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["judged"], model["right"]) == (1, 0)
    assert call("journal", journal) == 0
    assert "0 of 1 accepted answers were right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("feedback", "{journal}", "none", "right"), "has no answer 'none'"),
        (("feedback", "{journal}.other", "a", "right"), "there is no journal at"),
        (("feedback", "journal.db", "a", "right"), "expected sqlite:///PATH or postgresql://"),
        (("journal", "postgresql://u:secret@127.0.0.1:1/x"), "cannot be used"),
        (("journal", "{journal}", "--target", "1"), "--target should be"),
        (("recalibrate", "model", "--out", "x"), "--journal"),
        (("drift", "model"), "--journal"),
        (("serve", "model", "--journal", "journal.db"), "no URL of a journal"),
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
    assert "locked" in refused(capsys, "feedback", journal, "a", "right")
    other.execute("ROLLBACK")
    other.close()
    assert call("feedback", journal, "a", "right") == 0


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
    capsys.readouterr()
    assert call("drift", run.folder, "--journal", journal, "--json", *more) in (0, 1)
    assert json.loads(capsys.readouterr().out)["new_rows"] == 14

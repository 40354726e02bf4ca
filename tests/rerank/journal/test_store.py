"""The journal in SQLite: what goes in comes out, feedback, retention, schema, and refusals."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from assessments import make_assessment
from journals import make_entry, sqlite_url
from sqlalchemy import select

from rerank.data.checks import query_hash
from rerank.data.records import read_query
from rerank.errors import InputError, JournalError
from rerank.journal.store import (
    DAY,
    JOURNAL,
    KEPT,
    NO_PASSAGES,
    VERSION,
    JournalStore,
    entry_of,
)
from rerank.types import Passage, Query

ALL = select(JOURNAL).order_by(JOURNAL.c.entry_id)
NO_FEEDBACK = dict.fromkeys(("right", "comment", "judged", "first_right", "first_judged"))


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with JournalStore(sqlite_url(tmp_path), create=True) as made:
        yield made


def test_an_entry_comes_back_as_it_went_in(store: JournalStore) -> None:
    """Every value; twice the same entry is one; nothing is said of it yet."""
    entry = make_entry("a", answer="text \N{SNOWMAN}", attribution=0.5)
    store.add([entry])
    store.add([entry, make_entry("b")])
    first, second = store.rows(ALL)
    assert first == {**entry, **NO_FEEDBACK}
    assert second["answer_id"] == "b"


def test_an_entry_tells_of_its_assessment() -> None:
    """Scores of the best passages, and the lists that callers brought, whole."""
    found = make_assessment(confidence=0.3, texts=["text"] * 12)
    entry = entry_of(found, answer_id="a", model="m", latency=0.5)
    kept = json.loads(entry["passages"])
    assert kept == [p.to_dict() for p in found.first(KEPT)]
    assert (entry["top_doc_id"], entry["decision"]) == (kept[0]["doc_id"], "advisory only")
    assert json.loads(entry["asked"]) == {"query": found.ranking.query.text}
    passages = (Passage("0", "Title", "text \ud800"), Passage("1", "", "\0"))
    ranking = found.ranking
    query = Query("why", metadata={"lang": "en"}, passages=passages)
    brought = replace(
        found, ranking=replace(ranking, candidates=replace(ranking.candidates, query=query))
    )
    asked = json.loads(entry_of(brought, answer_id="a", model="m", latency=0)["asked"])
    assert asked["metadata"] == {"lang": "en"}
    assert [p["_id"] for p in asked["passages"]] == ["0", "1"]


def test_lists_are_kept_with_their_scores() -> None:
    """As they are read from a file of labels; a stage may not have brought a passage."""
    passages = (Passage("a", "", "", {"page": 1}), Passage("b", "", ""))
    query = Query(
        "why", passages=passages, scores={"bm25": np.array([1.5, np.nan]), "dense": np.ones(2)}
    )
    found = make_assessment(texts=["x", "y"])
    candidates = replace(found.ranking.candidates, query=query)
    ranking = replace(found.ranking, candidates=candidates)
    brought = replace(found, ranking=ranking, mode="lists")
    entry = entry_of(brought, answer_id="a", model="m", latency=0)
    assert entry["mode"] == "lists"
    read = read_query({**json.loads(entry["asked"]), "_id": "1"})
    assert read.passages == passages
    assert read.scores is not None
    np.testing.assert_array_equal(read.scores["bm25"], [1.5, np.nan])


def test_without_text_only_hashes_are_kept(store: JournalStore) -> None:
    """Neither the question nor the answer, the title or a comment is in the file."""
    found = make_assessment(confidence=0.9, texts=["a", "b"])
    secret = "the secret answer"
    bounded = pytest.importorskip("rerank.rag.answer.bounded").BoundedAnswer
    answer = bounded("q", secret, False, False, 0.9, "HIGH", (), (), 1.0, 0)
    entry = entry_of(found, answer_id="a", model="m", latency=0.1, answer=answer, without_text=True)
    assert (entry["question"], entry["asked"], entry["answer"], entry["top_document"]) == (
        None,
    ) * 4
    assert entry["question_hash"]
    assert entry["answer_hash"]
    store.add([entry])
    assert store.judge("a", True, "a secret comment")
    (row,) = store.rows(ALL)
    assert (row["right"], row["comment"]) == (True, None)
    assert secret not in str(row)
    assert found.ranking.query.text not in str(row)


def test_the_newest_word_wins_and_the_same_again_changes_nothing(store: JournalStore) -> None:
    """A comment stays where none comes with the same word; an unknown answer is told."""
    store.add([make_entry("a"), make_entry("b")])
    assert store.judge("a", True, "because")
    before = store.rows(ALL)[0]
    assert store.judge("a", True)
    assert store.rows(ALL)[0] == before
    assert store.judge("a", False, "no")
    after = store.rows(ALL)[0]
    assert (after["right"], after["comment"]) == (False, "no")
    assert store.judge("a", True)
    changed = store.rows(ALL)[0]
    assert (changed["right"], changed["comment"]) == (True, None), "that was why it is wrong"
    assert after["judged"] >= before["judged"]
    assert store.rows(ALL)[1]["right"] is None
    assert not store.judge("c", True)
    with pytest.raises(InputError, match="comment"):
        store.judge("a", True, "x" * 10_001)


def test_an_answer_of_nothing_cannot_be_right(store: JournalStore) -> None:
    """Without a passage there is nothing that a label could call right, unless a text was made."""
    bounded = pytest.importorskip("rerank.rag.answer.bounded").BoundedAnswer
    refused = bounded("q", "No answer.", True, 0.0, "VERY_LOW", False, 0.0, "INSUFFICIENT")
    for answer_id, made in (("bare", None), ("made", refused)):
        nothing = make_assessment(confidence=0.0)
        store.add([entry_of(nothing, answer_id=answer_id, model="m", latency=0.1, answer=made)])
    with pytest.raises(InputError, match="'bare' cannot be right: no passage was found"):
        store.judge("bare", True)
    assert store.judge("bare", False)
    assert store.judge("made", True)


@pytest.mark.parametrize("word", [None, "yes", 1])
def test_a_word_that_is_no_boolean_is_refused(store: JournalStore, word: Any) -> None:
    """None deleted the judgement; a boolean of NumPy is one."""
    store.add([make_entry("a")])
    assert store.judge("a", cast(bool, np.bool_(False)))
    with pytest.raises(InputError, match=f"should be True or False, got {word!r}"):
        store.judge("a", word)
    assert store.rows(ALL)[0]["right"] is False


def test_of_answers_with_one_id_the_newest_is_meant(store: JournalStore) -> None:
    """Clients may send one request id twice."""
    store.add([make_entry("a", entry_id="2"), make_entry("a", entry_id="1")])
    assert store.judge("a", True)
    assert [row["right"] for row in store.rows(ALL)] == [None, True]


def test_what_is_old_or_too_much_is_removed(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By days first, then the oldest beyond so many rows, in several transactions."""
    monkeypatch.setattr("rerank.journal.store.PRUNED", 2)
    new = make_entry()
    entries = [{**new, "entry_id": f"{i:04}", "answer_id": f"{i}"} for i in range(10)]
    old = [{**e, "time": e["time"] - 2 * DAY} for e in entries[:5]]
    store.add([*old, *entries[5:]])
    assert store.prune() == 0
    assert store.prune(days=1) == 5
    assert store.prune(rows=3) == 2
    assert [row["answer_id"] for row in store.rows(ALL)] == ["7", "8", "9"]


def test_a_document_that_a_caller_brought_is_a_text(store: JournalStore) -> None:
    """Past retention its name is deleted and its id hashed, also if only one of them is left.

    Labels of different passages stay apart, and the judgement can still be changed.
    """
    old = make_entry()["time"] - 2 * DAY
    named = {"time": old, "top_doc_id": "manual.pdf", "top_document": "Manual"}
    store.add([make_entry("searched", entry_id="1", **named)])
    store.add([make_entry("brought", entry_id="2", mode="rerank", **named)])
    pruned_before = {"mode": "rerank", "question": None, "asked": None, "passages": NO_PASSAGES}
    store.add([make_entry("left", entry_id="3", **named, **pruned_before)])
    without_name = {**named, "top_document": None}
    store.add([make_entry("id", entry_id="4", **without_name, **pruned_before)])
    for answer_id in ("searched", "brought", "left", "id"):
        assert store.judge(answer_id, True)
    assert store.prune(days=1) == 0
    rows = store.rows(ALL)
    assert [row["top_document"] for row in rows] == ["Manual", None, None, None]
    hashed = "#" + query_hash("manual.pdf")
    assert [row["top_doc_id"] for row in rows] == ["manual.pdf", hashed, hashed, hashed]
    assert store.prune(days=1) == 0
    assert store.rows(ALL) == rows
    assert store.judge("brought", True)
    assert all(row["question"] is row["asked"] is None for row in rows)


def test_a_journal_that_is_half_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema is made whole or not at all; the next try makes it."""

    class StopError(Exception):
        pass

    def stop(*_: Any, **__: Any) -> None:
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr("rerank.journal.store.sa.insert", stop)
        with pytest.raises(StopError):
            JournalStore(sqlite_url(tmp_path), create=True)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as plain:
        assert plain.execute("SELECT name FROM sqlite_master").fetchall() == []
    JournalStore(sqlite_url(tmp_path), create=True).close()


@pytest.mark.parametrize("version", ["1", "99"])
def test_the_schema_of_another_version_is_refused(store: JournalStore, version: str) -> None:
    """With what it is, what is expected and what to do; nothing is changed."""
    store.add([make_entry()])
    with store._write() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION.name} SET version_num = '{version}'")
    with pytest.raises(InputError, match=rf"version \(schema {version}\); expected schema 6: use"):
        store.check()
    assert len(store.rows(ALL)) == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("journal.db", "not a URL of a journal; expected sqlite:///PATH or postgresql://"),
        ("sqlite://", "cannot hold a journal"),
        ("mysql://user:secret@host/db", "cannot hold a journal"),
        (
            "postgresql://user:secret@host:port/db",
            r"'postgresql://\*\*\*@host:port/db' is not a URL",
        ),
        ("postgresql://user:secret@/db?port=x", "cannot hold a journal: .*port"),
        ("postgresql:///db?user=u&password=secret&port=x", "cannot hold a journal: .*port"),
        ("sqlite:///{folder}/none.db?timeout=x", "cannot hold a journal: .*float"),
        ("sqlite:///{folder}/none.db", "there is no journal at"),
    ],
)
def test_a_bad_address_is_refused(tmp_path: Path, url: str, words: str) -> None:
    """In a sentence without the password; nothing is made."""
    with pytest.raises(InputError, match=words) as refused:
        JournalStore(url.format(folder=tmp_path))
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    """No folder, no database, locked: a sentence each."""
    with pytest.raises(JournalError, match="unable to open database file"):
        JournalStore(sqlite_url(tmp_path / "none"), create=True)
    (tmp_path / "journal.db").write_text("no database" * 1000)
    with pytest.raises(JournalError, match="not a database"):
        JournalStore(sqlite_url(tmp_path))
    (tmp_path / "journal.db").unlink()
    with (
        JournalStore(sqlite_url(tmp_path), create=True, patience=0) as store,
        closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="locked"):
            store.add([make_entry()])
        assert store.rows(ALL) == []  # reading goes on
        other.execute("ROLLBACK")
        store.add([make_entry()])
        assert len(store.rows(ALL)) == 1

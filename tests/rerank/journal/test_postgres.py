"""The journal in PostgreSQL: the same as in SQLite, and what only a server can do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from journals import make_entry
from postgres import Postgres, postgres
from sqlalchemy import inspect, select

from rerank.errors import JournalError
from rerank.journal import journal as writing
from rerank.journal.journal import Journal
from rerank.journal.reading import by_day, report
from rerank.journal.store import (
    DAY,
    JOURNAL,
    METADATA,
    JournalStore,
    RefusedValueError,
    transaction,
)

ALL = select(JOURNAL).order_by(JOURNAL.c.entry_id)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as started:
        yield started


@pytest.fixture
def store(server: Postgres) -> Iterator[JournalStore]:
    with JournalStore(server.url, create=True, patience=1) as made:
        yield made
        with made._write() as connection:
            METADATA.drop_all(connection)


def test_several_may_make_the_schema_at_once(server: Postgres, store: JournalStore) -> None:
    """One of them does, and the others find it made, with all columns."""
    with store._write() as connection:
        METADATA.drop_all(connection)
    failed: list[BaseException] = []

    def make() -> None:
        try:
            JournalStore(server.url, create=True).close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with transaction(store._engine) as connection:
        columns = {column["name"] for column in inspect(connection).get_columns(JOURNAL.name)}
    assert columns == set(JOURNAL.c.keys())


def test_rows_feedback_retention_and_report(store: JournalStore) -> None:
    """As in SQLite."""
    entries = [
        make_entry(f"{i}", entry_id=f"{i:04}", confidence=0.4, question_hash=f"{i}")
        for i in range(6)
    ]
    entries = [{**e, "top_doc_id": "d", "top_document": "Manual"} for e in entries]
    store.add(entries)
    store.add(entries)
    assert [row["entry_id"] for row in store.rows(ALL)] == [e["entry_id"] for e in entries]
    first = store.rows(ALL)[0]
    unjudged = dict.fromkeys(("right", "comment", "judged", "first_right", "first_judged"))
    assert first == entries[0] | unjudged
    assert store.judge("1", True, "yes")
    before = store.rows(ALL)[1]
    assert store.judge("1", True)
    assert store.rows(ALL)[1] == before
    assert store.judge("1", False)
    assert not store.judge("none", True)
    told = report(store)
    (model,), (document,) = told.models, told.documents
    assert (model["questions"], model["judged"], model["right"]) == (6, 1, 0)
    assert (document["document"], document["questions"]) == ("Manual", 6)
    assert told.calibration.n == 1
    assert store.prune(rows=2) == 3  # the judged one stays, without its texts


def test_a_day_ends_at_midnight(store: JournalStore) -> None:
    """As in SQLite, which cuts off where PostgreSQL rounds."""
    midnight = make_entry()["time"] // DAY * DAY
    times = [midnight - DAY - 1, midnight - DAY, midnight - DAY / 3, midnight - 0.001, midnight]
    store.add([make_entry(f"{i}", time=at) for i, at in enumerate(times)])
    assert [day["questions"] for day in by_day(store, days=4)] == [1, 3, 1]


def test_texts_that_it_does_not_take(store: JournalStore) -> None:
    """NUL is replaced on the way in; another bad value is refused as such, and the rest goes in."""
    with pytest.raises(RefusedValueError):
        store.add([make_entry("a", question="\0")])
    counted: Counter[str] = Counter()
    writer = Journal(store, count=lambda outcome, n: counted.update({outcome: n}))
    for entry in (make_entry("b"), make_entry("c", question="\0"), make_entry("d")):
        writer.offer(entry)
    writer.close()
    assert counted == {"written": 2, "rejected": 1}
    assert sorted(row["answer_id"] for row in store.rows(ALL)) == ["b", "d"]


def test_a_server_that_dies_and_comes_back(
    server: Postgres, store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed is there, what came meanwhile is written, each once."""
    monkeypatch.setattr(writing, "PAUSES", (0.05, 0.05))
    failed, counted = threading.Event(), Counter[str]()

    def count(outcome: str, n: int) -> None:
        counted.update({outcome: n})
        if outcome == "failed":
            failed.set()

    writer: Any = Journal(store, count=count)
    writer.offer(make_entry("a"))
    assert writer.flush(60)
    server.stop()
    try:
        with pytest.raises(JournalError, match="cannot be used"):
            store.judge("a", True)
        writer.offer(make_entry("b"))
        assert failed.wait(600)
    finally:
        server.start()
    assert writer.flush(60)
    writer.close()
    assert [row["answer_id"] for row in store.rows(ALL)] == ["a", "b"]
    assert counted["written"] == 2

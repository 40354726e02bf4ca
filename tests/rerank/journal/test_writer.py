"""The thread that writes: order, bounds, outages, the end. The store is the real one."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from journals import make_entry, sqlite_url
from sqlalchemy import select

from rerank.journal import journal as writing
from rerank.journal.journal import Journal
from rerank.journal.store import JOURNAL, Entry, JournalStore

LONG = 600.0  # seconds; what takes so long has failed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JournalStore]:
    with JournalStore(sqlite_url(tmp_path), create=True, patience=0) as made:
        yield made


class Counted:
    """What the writer has told, and a way to wait until it has told something."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self._changed = threading.Condition()

    def __call__(self, outcome: str, count: int) -> None:
        """Count."""
        with self._changed:
            self.outcomes[outcome] += count
            self._changed.notify_all()

    def wait_for(self, true: Callable[[Counter[str]], bool]) -> None:
        """Wait until it is so."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self.outcomes), LONG), self.outcomes


def ids(store: JournalStore) -> list[str]:
    found = store.rows(select(JOURNAL.c.answer_id).order_by(JOURNAL.c.entry_id))
    return [row["answer_id"] for row in found]


def entries(count: int) -> list[Entry]:
    return [make_entry(str(i), entry_id=f"{i:06}") for i in range(count)]


def test_all_that_was_offered_is_written_at_the_end(store: JournalStore) -> None:
    """From many threads, without one waiting for the database."""
    counted = Counted()
    writer, offered = Journal(store, count=counted), entries(1200)
    threads = [
        threading.Thread(target=lambda part=part: [writer.offer(e) for e in offered[part::4]])
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert ids(store) == [e["answer_id"] for e in offered]
    assert counted.outcomes == {"written": 1200}
    assert not writer.offer(make_entry("late"))


def test_flush_waits_until_it_is_written(store: JournalStore) -> None:
    writer = Journal(store)
    assert writer.flush(LONG)
    writer.offer(make_entry("a"))
    assert writer.flush(LONG)
    assert ids(store) == ["a"]
    writer.close()


def test_a_locked_database_costs_nothing_but_time(
    store: JournalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Entries wait; the outage is logged once, and its end too."""
    monkeypatch.setattr(writing, "PAUSES", (0.01, 0.01))
    caplog.set_level(logging.INFO, writing.logger.name)
    counted = Counted()
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer = Journal(store, count=counted)
        for entry in entries(5):
            assert writer.offer(entry)
        counted.wait_for(lambda seen: seen["failed"] >= 3)
        assert writer.waiting == 5
        assert not writer.flush(0)
        other.execute("ROLLBACK")
    assert writer.flush(LONG)
    writer.close()
    assert ids(store) == ["0", "1", "2", "3", "4"]
    assert counted.outcomes["written"] == 5
    assert caplog.messages == ["journal fails", "journal works again"]


def test_a_file_that_is_gone_is_made_anew(
    store: JournalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in it is gone with it; what comes is not."""
    monkeypatch.setattr(writing, "PAUSES", (0.01, 0.01))
    writer = Journal(store)
    writer.offer(make_entry("a"))
    assert writer.flush(LONG)
    for path in tmp_path.iterdir():
        path.unlink()
    writer.offer(make_entry("b"))
    assert writer.flush(LONG)
    writer.close()
    assert ids(store) == ["b"]


def test_a_full_queue_drops_and_counts(
    store: JournalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait are kept, and lost only where the database is dead at the end too."""
    monkeypatch.setattr(writing, "MAX_ENTRIES", 3)
    monkeypatch.setattr(writing, "PAUSES", (0.01, 0.01))
    counted = Counted()
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer = Journal(store, count=counted)
        assert [writer.offer(e) for e in entries(5)] == [True, True, True, False, False]
        counted.wait_for(lambda seen: seen["failed"] >= 1)
        writer.close(0)
        other.execute("ROLLBACK")
    assert counted.outcomes["dropped"] == 2
    assert counted.outcomes["lost"] == 3
    assert ids(store) == []


def test_long_texts_fill_the_queue_too(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded, whatever callers bring."""
    monkeypatch.setattr(writing, "MAX_SIZE", 1000)
    writer = Journal(store)
    assert not writer.offer(make_entry("long", asked="x" * 1001))
    assert writer.offer(make_entry("short"))
    writer.close()
    assert ids(store) == ["short"]


def test_an_entry_that_the_database_refuses_fails_alone(store: JournalStore) -> None:
    """Those that came with it are written."""
    counted, offered = Counted(), entries(3)
    bad: Any = {"not": "a text"}
    writer = Journal(store, count=counted)
    for entry in (offered[0], make_entry("bad", question=bad), *offered[1:]):
        writer.offer(entry)
    writer.close()
    assert ids(store) == ["0", "1", "2"]
    assert counted.outcomes == {"written": 3, "rejected": 1}


def test_retention_is_kept_when_it_starts(store: JournalStore) -> None:
    """Before the first entry is written."""
    store.add(entries(5))
    writer = Journal(store, rows=2)
    writer.close()
    assert ids(store) == ["3", "4"]

"""Days and the queue of a journal, compared with counts by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journals import make_entry, sqlite_url
from sqlalchemy import event, select

from rerank.journal.reading import by_day, waiting
from rerank.journal.store import DAY, JOURNAL, Entry, JournalStore

VERSION = make_entry("1")["model"]  # of the model whose answers these are


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JournalStore]:
    with JournalStore(sqlite_url(tmp_path), create=True) as made:
        yield made


def entry(i: int, age: float, confidence: float, accepted: bool, **changed: object) -> Entry:
    """The entry of a question asked `age` days ago."""
    made = make_entry(str(i), confidence=confidence, accepted=accepted)
    own = {"entry_id": f"{i:04}", "question_hash": f"{i:016}", "time": made["time"] - age * DAY}
    return {**made, **own, **changed}


def test_days_are_counted_by_level(store: JournalStore) -> None:
    """A row a day that has answers, oldest first; older ones than asked for are left out."""
    store.add(
        [
            entry(1, 40, 0.9, True),
            entry(2, 3, 0.9, True, level="HIGH"),
            entry(3, 3, 0.5, False, level="LOW"),
            entry(4, 0, 0.8, True, level="MEDIUM"),
        ]
    )
    early, late = by_day(store, days=30)
    assert early["day"] < late["day"]
    assert (early["questions"], early["accepted"], early["levels"]) == (2, 1, {"HIGH": 1, "LOW": 1})
    assert early["confidence"] == pytest.approx(0.7)
    assert (late["questions"], late["levels"]) == (1, {"MEDIUM": 1})
    assert by_day(store, days=1e-9) == []


def test_all_days_come_from_one_query(store: JournalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day begins at midnight (UTC) and ends just before the next one."""
    midnight = make_entry()["time"] // DAY * DAY
    times = [midnight - 2 * DAY, midnight - DAY - 1, midnight - DAY - 0.001, midnight - DAY]
    store.add([entry(i, 0, 0.9, True, time=at) for i, at in enumerate(times)])
    asked: list[object] = []
    rows = store.rows
    monkeypatch.setattr(store, "rows", lambda query: asked.append(query) or rows(query))
    assert [day["questions"] for day in by_day(store, days=300)] == [3, 1]
    assert len(asked) == 1


def test_what_waits_is_unsure_and_not_judged(store: JournalStore) -> None:
    """The newest first; an answer that was accepted, or judged, waits no longer."""
    store.add([entry(i, 0, 0.3, False) for i in range(3)])
    store.add([entry(3, 0, 0.9, True), entry(4, 0, 0.3, False, mode="rerank")])
    assert [row["id"] for row in waiting(store, model=VERSION)] == ["2", "1", "0"]
    assert [row["id"] for row in waiting(store, model=VERSION, limit=1)] == ["2"]
    store.judge("1", right=False)
    assert [row["id"] for row in waiting(store, model=VERSION)] == ["2", "0"]
    assert waiting(store, model=VERSION)[0]["confidence"] == 0.3
    assert waiting(store, model="another") == []


def test_a_repeated_question_waits_once(store: JournalStore) -> None:
    """By its newest answer, with how often it came; judging that one judges them all."""
    again = {"question_hash": "same"}
    store.add([entry(i, 0, 0.3, False, **again) for i in range(3)])
    store.add([entry(3, 0, 0.3, False), entry(4, 0, 0.9, True, **again)])
    assert [(row["id"], row["times"]) for row in waiting(store, model=VERSION)] == [
        ("3", 1),
        ("2", 3),
    ]
    store.judge("2", right=False)
    assert [row["id"] for row in waiting(store, model=VERSION)] == ["3"]
    store.add([entry(5, 0, 0.2, False, top_doc_id="another", **again)])
    assert [(row["id"], row["times"]) for row in waiting(store, model=VERSION)] == [
        ("5", 1),
        ("3", 1),
    ]


def test_a_judged_answer_says_nothing_of_the_first_passage(store: JournalStore) -> None:
    """The same question waits on, although its generated answer was judged."""
    again = {"question_hash": "same"}
    store.add([entry(1, 0, 0.3, False, **again)])
    store.add([entry(2, 0, 0.3, False, answer_hash="h", attribution=1.0, **again)])
    store.judge("2", right=True)
    assert [row["id"] for row in waiting(store, model=VERSION)] == ["1"]


def test_retention_takes_the_texts_of_judged_answers_and_keeps_their_numbers(
    store: JournalStore,
) -> None:
    """An answer that nobody judged goes whole; of the others every label still counts."""
    store.add([entry(i, 10, 0.3, False, question="text", asked="{}") for i in range(3)])
    store.judge("1", right=True, comment="said")
    assert store.prune(days=5) == 2
    (row,) = store.rows(select(JOURNAL))
    assert (row["answer_id"], row["right"], row["confidence"]) == ("1", True, 0.3)
    assert [row[name] for name in ("question", "asked", "comment")] == [None] * 3
    assert row["passages"] == "[]"
    assert store.prune(days=5) == 0


def test_judgements_are_found_by_an_index(store: JournalStore) -> None:
    """Otherwise the page would compare each waiting answer with the whole journal."""
    asked: list[tuple[str, Any]] = []

    @event.listens_for(store._engine, "before_cursor_execute")
    def note(_: Any, cursor: Any, statement: str, values: Any, *more: Any) -> None:
        asked.append((statement, values))

    waiting(store, model=VERSION)
    statement, values = next(pair for pair in asked if "times" in pair[0])
    with store._engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    steps = [row[-1] for row in plan]
    assert any(s.startswith("SEARCH") and "(question_hash=?)" in s for s in steps), steps

"""The drift alarm by the journal: which answers are compared, and what the same alarm says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from journals import make_entry, sqlite_url

from calibration.drift import Drift, Sketch, alarm, sketch
from rerank.journal.reading import journal_drift
from rerank.journal.store import DAY, Entry, JournalStore
from rerank.types import Floats

NAMES = ["a", "b"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JournalStore]:
    with JournalStore(sqlite_url(tmp_path), create=True) as made:
        yield made


@pytest.fixture
def fitted() -> Sketch:
    return sketch(draw(300), NAMES)


def draw(n: int, shift: float = 0.0) -> Floats:
    return np.random.default_rng(n).normal(shift, 1, (n, 2))


def entries(features: Floats, **changed: Any) -> list[Entry]:
    """An entry a row of features, each of its own question."""
    made = make_entry(mode="search", model="m1")
    return [
        {
            **made,
            "entry_id": f"{changed.get('model', 'm1')}{changed.get('mode', '')}{i:06}",
            "question_hash": f"{i:016}",
            "features": row.tobytes(),
            **changed,
        }
        for i, row in enumerate(features)
    ]


def found(store: JournalStore, fitted: Sketch, **changed: Any) -> Drift | None:
    given = {"model": "m1", "mode": "search", "days": 30, "newest": 200, "level": 0.01, **changed}
    return journal_drift(store, fitted, **given)


def test_the_same_questions_are_no_alarm_and_others_are(
    store: JournalStore, fitted: Sketch
) -> None:
    """The newest answers decide; the result is that of the alarm on their features."""
    store.add(entries(draw(150)))
    told = found(store, fitted)
    assert told == alarm(fitted, draw(150))
    assert not told.fired
    store.add(entries(draw(100, 3.0), time=make_entry()["time"] + 1))
    moved = [{**e, "entry_id": f"n{e['entry_id']}"} for e in entries(draw(120, 3.0))]
    store.add(moved)
    told = found(store, fitted, newest=120)
    assert told is not None
    assert told.fired
    assert told.moves == alarm(fitted, draw(120, 3.0)).moves


def test_only_answers_of_the_model_and_the_mode_count(store: JournalStore, fitted: Sketch) -> None:
    """Of these days; an entry without features, or with others, is passed over."""
    store.add(entries(draw(20, 9.0), model="m2"))
    store.add(entries(draw(20, 9.0), mode="rerank"))
    assert found(store, fitted) is None
    store.add(entries(draw(20), model="m3", time=make_entry()["time"] - 2 * DAY))
    assert found(store, fitted, model="m3", days=1) is None
    assert found(store, fitted, model="m3", days=3) == alarm(fitted, draw(20))
    odd = [None, b"", b"123", np.ones(3).tobytes()]
    store.add(
        [
            make_entry(mode="search", model="m3", entry_id=f"z{i}", features=features)
            for i, features in enumerate(odd)
        ]
    )
    assert found(store, fitted, model="m3") == alarm(fitted, draw(20))


def test_one_question_asked_often_is_no_evidence(store: JournalStore, fitted: Sketch) -> None:
    """A hundred times the same strange question is worth one; a hundred strange ones are not."""
    same = np.repeat(draw(1, 9.0), 100, axis=0)
    store.add(entries(same, question_hash="same"))
    told = found(store, fitted)
    assert told is not None
    assert (told.m, told.new_rows, told.fired) == (1, 100, False)
    store.add([{**e, "entry_id": f"n{e['entry_id']}"} for e in entries(draw(100, 9.0))])
    told = found(store, fitted, newest=100)
    assert told is not None
    assert told.fired

"""Labels, monitors and trends out of the journal, compared with counts by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from journals import make_entry, sqlite_url

from calibration.sequential import AccuracyMonitor, CalibrationMonitor
from rerank.journal.reading import (
    DOCUMENT_COLUMNS,
    monitors,
    newest_labels,
    one_per_question,
    report,
)
from rerank.journal.store import ANSWERED, DAY, REFUSED, UNSURE, Entry, JournalStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JournalStore]:
    with JournalStore(sqlite_url(tmp_path), create=True) as made:
        yield made


def entry(i: int, question: str, confidence: float, **changed: object) -> Entry:
    """The entry of a question, with an order."""
    made = make_entry(str(i), confidence=confidence, question_hash=question)
    return {**made, "entry_id": f"{i:04}", **changed}


def test_labels_are_the_newest_of_each_first_passage(store: JournalStore) -> None:
    """In the order in which they came; none of generated answers, none that nobody judged."""
    store.add([entry(i, q, 0.8) for i, q in enumerate(["x", "y", "x", "z", "w"])])
    store.add([entry(9, "v", 0.8, answer="text", answer_hash="hash")])
    for answer, right in ((1, True), (0, True), (2, False), (9, True), (3, True)):
        assert store.judge(str(answer), right)
    found = [(row["question_hash"], row["right"]) for row in newest_labels(store)]
    assert found == [("y", True), ("x", False), ("z", True)]
    store.add([entry(10, "y", 0.8, top_doc_id="another")])
    assert store.judge("10", False)
    rows = newest_labels(store)
    found = [(row["question_hash"], row["right"]) for row in rows]
    assert found == [("y", True), ("x", False), ("z", True), ("y", False)]
    found = [(row["question_hash"], row["right"]) for row in one_per_question(rows)]
    assert found == [("x", False), ("z", True), ("y", False)]
    assert [row["question_hash"] for row in one_per_question(rows, 2)] == ["z", "y"]


def test_monitors_see_each_question_once_in_the_order_of_its_label(store: JournalStore) -> None:
    """The numbers are those of the monitors themselves; another model's labels do not count."""
    confidences = [0.9, 0.8, 0.75, 0.95, 0.3, 0.6]
    store.add([entry(i, f"q{i}", p) for i, p in enumerate(confidences)])
    store.add([entry(7, "q0", 0.9), entry(8, "other", 0.9, model="m2")])
    for i in (8, 3, 0, 1, 7, 2, 4):
        assert store.judge(str(i), i % 2 == 0)
    accuracy, calibrated = monitors(store, "m1", target=0.8)
    assert accuracy == AccuracyMonitor.start(0.8).update([0, 1, 0, 1])
    expected = CalibrationMonitor.start().update([0, 1, 0, 1, 1], [0.95, 0.9, 0.8, 0.75, 0.3])
    assert calibrated.to_dict() == expected.to_dict()
    assert monitors(store, "none", target=0.8)[1] == CalibrationMonitor.start()


def test_a_judgement_that_is_changed_later_takes_no_alarm_back(store: JournalStore) -> None:
    """The monitors read the first judgement of each question, in the order of the first ones."""
    store.add([entry(i, f"q{i}", 0.9) for i in range(30)])
    assert all(store.judge(str(i), False) for i in range(30))
    before = monitors(store, "m1", target=0.7)
    assert all(store.judge(str(i), True) for i in (5, *range(30)))
    assert monitors(store, "m1", target=0.7) == before
    assert all(monitor.alarmed for monitor in before)
    assert report(store, days=30).models[0]["right"] == 30


def test_answers_should_be_right_as_often_as_their_model_accepts(store: JournalStore) -> None:
    """By default; the journal holds the threshold of each answer."""
    store.add([entry(1, "q1", 0.9, threshold=0.7), entry(2, "q2", 0.9, model="m2")])
    assert report(store, model="m1").accuracy.target == 0.7
    store.add([entry(3, "q3", 0.9, threshold=0.85)])
    assert report(store, model="m1").accuracy.target == 0.85
    assert report(store, model="m1", target=0.6).accuracy.target == 0.6
    store.add([entry(4, "q4", 0.9, threshold=1.0)])
    assert report(store, model="m1").accuracy.target == 0.99


def test_documents_that_are_never_sure_enough(store: JournalStore) -> None:
    """Asked for at least twice, never accepted; with the confidence before and lately."""
    now = make_entry()["time"]
    old = now - 20 * DAY
    rows = [
        entry(0, "a", 0.2, top_document="Manual", time=old),
        entry(1, "b", 0.4, top_document="Manual"),
        entry(2, "b", 0.6, top_document="Manual"),  # the same question again
        entry(3, "c", 0.3, top_document="Once"),
        entry(4, "d", 0.3, top_document="Sure"),
        entry(5, "e", 0.9, top_document="Sure"),
        entry(6, "f", 0.1, top_document=None, top_doc_id="d7"),
        entry(7, "g", 0.3, top_document=None, top_doc_id="d7"),
        entry(8, "h", 0.1, top_document="Old", time=now - 40 * DAY),
        entry(9, "i", 0.1, top_document="Old", time=now - 40 * DAY),
        entry(10, "j", 0.1, top_document="List", mode="rerank"),
        entry(11, "k", 0.1, top_document="List", mode="rerank"),
    ]
    store.add([{**row, "top_doc_id": row["top_doc_id"] or "d"} for row in rows])
    found = report(store, days=30)
    told = [tuple(d[k] for k in ("document", *DOCUMENT_COLUMNS[-2:])) for d in found.documents]
    assert told == [
        ("Manual", pytest.approx(0.2), pytest.approx(0.5)),
        ("d7", None, pytest.approx(0.2)),
    ]
    assert [d["questions"] for d in found.documents] == [2, 2]
    (model,) = found.models
    assert (model["model"], model["questions"], model["judged"]) == ("m1", 10, 0)
    assert model["accepted"] == pytest.approx(0.1)
    assert not found.alarmed
    assert "Manual" in found.text()
    fields = json.loads(json.dumps(found.to_dict()))["documents"][0]
    assert tuple(fields) == DOCUMENT_COLUMNS, "the table and the JSON differ in names"
    assert "Nobody has judged" in found.text()
    assert json.loads(json.dumps(found.to_dict()))["documents"][0]["document"] == "Manual"


def test_few_labels_are_told_without_bounds(store: JournalStore) -> None:
    """A share between 0% and 100% says nothing; more labels have bounds."""
    store.add([entry(i, f"q{i}", 0.9 if i else 0.2) for i in range(20)])
    assert store.judge("0", True)
    assert "no accepted answer has been judged yet" in report(store).text()
    assert store.judge("1", True)
    found = report(store)
    assert "1 of 1 accepted answers were right, too few to say more." in found.text()
    assert "too few to say more" in found.to_dict()["monitors"][0]["sentence"]
    for i in range(2, 20):
        assert store.judge(str(i), True)
    assert "19 of 19 accepted answers were right, between" in report(store).text()


def test_labels_of_answers_are_counted_apart(store: JournalStore) -> None:
    """They say nothing of the confidence, which is that of the first passage."""
    answer = {"answer": "text", "answer_hash": "hash"}
    store.add([entry(0, "a", 0.9), entry(1, "b", 0.9, **answer), entry(2, "c", 0.9, **answer)])
    for i, right in enumerate((False, True, False)):
        store.judge(str(i), right)
    (model,) = report(store).models
    assert (model["right"], model["judged"]) == (0, 1)
    assert (model["answers_right"], model["answers_judged"]) == (1, 2)
    assert report(store).calibration.n == 1


def test_refusals_doubts_and_attribution_are_told(store: JournalStore) -> None:
    """By model, of generated answers alone; the mean is of those that have sentences."""
    said = [(ANSWERED, 1.0), (ANSWERED, 0.5), (UNSURE, 0.75), (REFUSED, None), (REFUSED, 0.25)]
    store.add([entry(i, f"q{i}", 0.8, decision=d, attribution=a) for i, (d, a) in enumerate(said)])
    store.add([entry(8, "p", 0.8), entry(9, "r", 0.8, model="m2")])
    told = {row["model"]: row for row in json.loads(json.dumps(report(store).to_dict()))["models"]}
    keys = ("answers", "refused", "unsure", "attribution")
    assert [told["m1"][key] for key in keys] == [5, 2, 1, pytest.approx(0.625)]
    assert [told["m2"][key] for key in keys] == [0, 0, 0, None]
    sentence = "m1: 5, of these 2 refused and 1 with low confidence; sources support 62% of"
    assert sentence in report(store).text()
    assert "m2: 0" not in report(store).text()


def test_the_tests_may_be_of_another_model_than_the_newest(store: JournalStore) -> None:
    """Such as of the one that is served, while another one answers beside it."""
    store.add([entry(i, f"q{i}", 0.8) for i in range(40)])
    for i in range(40):
        store.judge(str(i), False)
    store.add([entry(50, "q", 0.8, model="m2", time=make_entry()["time"] + 60)])
    assert not report(store).alarmed
    assert report(store, model="m1").alarmed
    assert report(store, model="m3").calibration.n == 0
    assert "Model m1:\nAlarm" in report(store, model="m1").text()


def test_an_empty_journal_is_told(store: JournalStore) -> None:
    """In a sentence, without an alarm."""
    found = report(store)
    assert "no question in the last 30 days" in found.text()
    assert not found.alarmed


def test_wrong_answers_set_off_the_alarm(store: JournalStore) -> None:
    """Forty answers that promised 0.8 and were wrong."""
    store.add([entry(i, f"q{i}", 0.8) for i in range(40)])
    for i in range(40):
        store.judge(str(i), False)
    found = report(store)
    assert found.alarmed
    assert "Alarm: 0 of 40 accepted answers were right" in found.text()

"""What events come to: weights of several draws, and what the labels then say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rerank.data.grouping import THESE_DOCUMENTS
from rerank.data.labels import CHOSEN, WEIGHT
from rerank.errors import InputError
from rerank.labelling.judgements import (
    PROPOSED,
    Grade,
    Person,
    Question,
    drawn_evenly,
    gone,
    questions_of,
    to_undo,
    weights,
)
from rerank.labelling.labels import ANOTHER_MODEL, groups_of, labels_of, progress_sentences
from rerank.types import Passage


def question(i: int, *, draw: int = 0, weight: float = 1.0, right: bool | None = None) -> Question:
    """A question that one person has judged, where `right` says whether its top is right."""
    made = Question(f"q{i}", f"question {i}", {}, draw, weight, 0.8, "top")
    if right is not None:
        made.people["ada"] = Person({"top": "right" if right else "wrong"}, done=True)
    return made


def of_file(one: Question, pool: int, *continues: int) -> Question:
    """The question, drawn from so many questions of the file of earlier draws."""
    return replace(one, pool=pool, continues=continues)


def test_even_draws_stay_even() -> None:
    """10 of 100, then 20 of the 90 that are left, then the rest: each stands for as many."""
    first = [question(i, weight=10) for i in range(10)]
    second = [of_file(question(i, draw=1, weight=90 / 20), 90, 0) for i in range(20)]
    third = [of_file(question(i, draw=2), 70, 0, 1) for i in range(70)]
    assert weights(first) == [10.0] * 10
    assert weights(first + second) == pytest.approx([100 / 30] * 30)
    assert weights(first + second + third) == pytest.approx([1.0] * 100)
    assert drawn_evenly(first + second + third)
    for one in first + second:
        one.people["ada"] = Person({}, done=True)
    made = labels_of(first + second, partly_right=False).queries.values()
    assert not any(q.metadata for q in made)  # though sums of floats differ in the last digit


@pytest.mark.parametrize("whole", [50, 500])
def test_questions_of_another_file_stand_for_that_file_alone(whole: int) -> None:
    """50 of a file of 50 or 500, all of another one of 20, and then 30 more of the first if any.

    The last ones join those of their own file, which stay a uniform sample of it.
    """
    first = [of_file(question(i, weight=whole / 50, right=True), whole) for i in range(50)]
    second = [of_file(question(50 + i, draw=1, right=True), 20) for i in range(20)]
    assert weights(first + second) == [whole / 50] * 50 + [1.0] * 20
    made = labels_of(first + second, partly_right=False).queries.values()
    kept = [q.metadata.get(WEIGHT) for q in made]
    assert kept == ([None] * 70 if whole == 50 else [10.0] * 50 + [1.0] * 20)
    if whole == 500:
        said = progress_sentences(
            first + second, {}, calibrated=True, target=0.7, partly_right=False
        )
        assert "for a certificate draw evenly, from one file or the same share of each" in said[1]
        third = [of_file(question(70 + i, draw=2, weight=450 / 30), 450, 0) for i in range(30)]
        expected = [500 / 80] * 50 + [1.0] * 20 + [500 / 80] * 30
        assert weights(first + second + third) == pytest.approx(expected)


def test_what_a_killed_draw_has_written_stands_for_its_whole_file() -> None:
    """5 of 10 lines of a draw from 100 are written; a further draw is from the 95 that are left."""
    first = [of_file(question(i, weight=10), 100) for i in range(5)]
    assert weights(first) == [20.0] * 5
    second = [of_file(question(5 + i, draw=1, weight=19), 95, 0) for i in range(5)]
    assert weights(first + second) == pytest.approx([10.0] * 10)


def test_a_file_of_the_size_of_what_is_left_is_another_file() -> None:
    """50 of 100, then all 50 of another file: the first ones still stand for two each."""
    first = [of_file(question(i, weight=2), 100) for i in range(50)]
    second = [of_file(question(50 + i, draw=1), 50) for i in range(50)]
    assert weights(first + second) == [2.0] * 50 + [1.0] * 50


def test_a_file_that_has_grown_is_counted_once() -> None:
    """10 of 40, and 10 of the 30 that were left and 10 more: those drawn before stand for
    themselves, the new ones for the other 40.
    """
    first = [of_file(question(i, weight=4), 40) for i in range(10)]
    second = [of_file(question(10 + i, draw=1, weight=4), 40, 0) for i in range(10)]
    assert weights(first + second) == [1.0] * 10 + [4.0] * 10


def test_a_proposed_question_stands_for_no_other() -> None:
    """Then no question has a weight; and if some were drawn by confidence, their labels say so."""
    even, uneven = ([question(i, weight=w, right=True) for i in range(2)] for w in (2, 3))
    proposed = replace(question(9, draw=1, right=False), metadata={PROPOSED: True})
    uneven[0].weight = 1.5
    assert weights([*even, proposed]) == weights([*uneven, proposed]) == [0.0] * 3

    def metadata(questions: list[Question]) -> list[dict[str, Any]]:
        made = labels_of(questions, partly_right=False).queries.values()
        return [{k: q.metadata[k] for k in (WEIGHT, CHOSEN) if k in q.metadata} for q in made]

    assert metadata(uneven) == [{WEIGHT: 1.5}, {WEIGHT: 3}]
    assert metadata([*even, proposed]) == [{}] * 3
    assert metadata([*uneven, proposed]) == [{CHOSEN: True}] * 3
    said = progress_sentences(
        [*uneven, proposed], {}, calibrated=True, target=0.7, partly_right=False
    )
    assert "which were drawn by confidence and stand for no others" in said[0]


def test_two_uneven_draws_estimate_a_sum_without_bias() -> None:
    """The mean over 4000 pairs of draws is the sum of the 12 values."""
    rng = np.random.default_rng(0)
    values = rng.random(12)
    sums = []
    for _ in range(4000):
        rows = [rng.choice(3), *rng.choice(np.arange(3, 12), 3, replace=False)]
        rest = [i for i in range(12) if i not in rows]
        more = rng.choice(rest, 3, replace=False)
        first = [question(i, weight=3.0) for i in rows]
        second = [of_file(question(i, draw=1, weight=8 / 3), 8, 0) for i in more]
        sums.append(np.dot(weights(first + second), values[[*rows, *more]]))
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - values.sum()) < 4 * error


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        (3, 4, "13 more are needed to calibrate"),
        (20, 0, "a calibration needs labels of both kinds"),
        (12, 9, "Enough to calibrate; with more"),
    ],
)
def test_before_calibration_it_says_what_is_missing(right: int, wrong: int, expected: str) -> None:
    """Twenty labels, and both right and wrong answers among them."""
    asked = [question(i, right=i < right) for i in range(right + wrong)]
    said = progress_sentences(asked, {}, calibrated=False, target=0.7, partly_right=False)
    assert said[0].startswith(f"{right + wrong} labelled: the top passage is right for")
    assert expected in said[1]


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [(24, 6, "would suffice"), (99, 1, "Certified from 0.800"), (1, 99, "better scores")],
)
def test_after_it_what_a_certificate_takes(right: int, wrong: int, expected: str) -> None:
    """Labels that do, some more, or better scores."""
    asked = [question(i, right=i < right) for i in range(right + wrong)]
    said = progress_sentences(asked, {}, calibrated=True, target=0.7, partly_right=False)
    assert "confidence is 80% on average" in said[0]
    assert expected in said[1]


def test_confidences_below_the_target_certify_nothing() -> None:
    """`calibrate` certifies no threshold below it, however often these are right."""
    asked = [replace(question(i, right=i < 99), confidence=0.6) for i in range(100)]
    said = progress_sentences(asked, {}, calibrated=True, target=0.7, partly_right=False)
    assert "better scores are needed" in said[1]


@pytest.mark.parametrize(("drawn_by", "ours"), [("new", True), ("old", False)])
def test_the_confidence_of_another_model_is_not_told_as_this_one_s(
    drawn_by: str, ours: bool
) -> None:
    """Such as that of the model of `init`; one of its questions is enough."""
    asked = [replace(question(i, right=i < 99), drawn_by="new") for i in range(100)]
    asked[3].drawn_by = drawn_by
    said = progress_sentences(
        asked, {}, calibrated=True, version="new", target=0.7, partly_right=False
    )
    assert said[0].startswith("100 labelled: the top passage is right for 99%")
    assert ("confidence is 80% on average" in said[0]) is ours
    assert ("Certified from" in said[1]) is ours
    assert (said[1] == ANOTHER_MODEL) is not ours


def test_questions_of_one_document_are_not_said_to_be_enough() -> None:
    """Questions about five documents certify no more than five, however many they are."""
    asked = [question(i, right=i < 99) for i in range(100)]
    groups = {q.query_id: f"document {i // 20}" for i, q in enumerate(asked)}
    for of, enough in (({}, True), (groups, False)):
        said = progress_sentences(asked, of, calibrated=True, target=0.7, partly_right=False)
        assert ("Certified from" in said[1]) == enough


def test_what_is_certified_names_the_questions_that_it_is_about() -> None:
    """With labels of fewer than ten documents, these are new questions about the same ones."""
    asked = [question(i, right=i < 99) for i in range(100)]
    passages = {f"d{i}": Passage(f"d{i}", f"Page {i}", f"text number {i}") for i in range(5)}

    def labelled(i: int) -> Question:
        grades: dict[str, Grade] = {f"d{i % 5}": "right"}
        return replace(question(i), people={"ann": Person(grades, done=True)})

    _, about = groups_of([labelled(i) for i in range(30)], passages.get, partly_right=False)
    assert about == THESE_DOCUMENTS
    said = progress_sentences(
        asked, {}, about=about, calibrated=True, target=0.7, partly_right=False
    )
    assert "at least 70%, for new questions about these" in said[1]


def test_labels_drawn_by_confidence_are_not_said_to_certify() -> None:
    """They have weights, or no weights though they should."""
    asked = [question(i, weight=1.0 + i % 2, right=True) for i in range(100)]
    said = progress_sentences(asked, {}, calibrated=True, target=0.7, partly_right=False)
    assert "certify nothing; for a certificate draw evenly" in said[1]


def test_the_words_of_a_question_change_no_more_once_somebody_has_judged_it() -> None:
    """Two people accept one proposal in other words: the first words count, and cannot be undone.

    Otherwise the grades for one question would stand beside another one.
    """
    drawn = {"do": "draw", "query_id": "q", "text": "proposed", "metadata": {}, "draw": 0}
    drawn |= {"weight": 1.0, "confidence": 0.5, "top": "a", "proposed": True, "pool": 1}
    drawn |= {"continues": [], "drawn_by": "m"}

    def event(by: str, do: str, **more: object) -> dict[str, Any]:
        return {"do": do, "by": by, "query_id": "q", **more}

    def accepted(by: str, text: str) -> dict[str, Any]:
        return event(by, "accept", text=text, confidence=0.6, top="b")

    judged = event("ada", "judge", grade="right", done=True, doc_ids=["b"])
    first = [drawn, accepted("ada", "words of ada"), judged, accepted("ben", "words of ben")]
    (found,) = questions_of(first)
    assert (found.text, found.done) == ("words of ada", True)
    other = event("ben", "judge", grade="wrong", done=True, doc_ids=["b"])
    undone = {"do": "undo", "by": "ada"}
    (found,) = questions_of([drawn, accepted("ada", "words of ada"), other, undone])
    assert (found.text, found.proposed) == ("words of ada", False)
    (found,) = questions_of([drawn, accepted("ada", "words of ada"), undone])
    assert found.proposed
    before = event("ada", "judge", grade="right", done=False, doc_ids=["a"])
    events = [drawn, before, accepted("ada", "words of ada"), other]
    assert to_undo(events, "ada") is None
    assert to_undo(events[:3], "ada") == 2


def test_an_answer_that_is_gone_opens_its_question_again() -> None:
    """For whoever called it right or partly right; who called it wrong has done so still."""
    draw = {"do": "draw", "query_id": "a", "text": "a?", "metadata": {}, "draw": 0, "weight": 1.0}
    draw |= {"confidence": 0.5, "top": "d1", "proposed": False, "pool": 1, "continues": []}
    draw |= {"drawn_by": "m"}
    judge = {"do": "judge", "query_id": "a", "doc_ids": ["d1"], "done": True}
    events = [
        draw,
        judge | {"by": "ada", "grade": "partly"},
        judge | {"by": "ben", "grade": "wrong"},
    ]
    before = questions_of(events)
    assert gone(before, {"d1", "d2"}) == []
    lost = gone(before, {"d2"})
    assert lost == [{"do": "gone", "query_id": "a", "doc_ids": ["d1"]}]
    (after,) = questions_of([*events, *lost])
    assert {name: person.done for name, person in after.people.items()} == {
        "ada": False,
        "ben": True,
    }
    assert after.judged == {}
    assert gone([after], {"d2"}) == []
    again = judge | {"by": "ada", "grade": "right", "doc_ids": ["d2"]}
    (mended,) = questions_of([*events, *lost, again])
    assert mended.judged == {"d2": ["right"]}


def test_events_that_do_not_fit_are_refused_with_a_sentence() -> None:
    """As after a line was mended or removed by hand."""
    with pytest.raises(InputError, match="put the line back"):
        questions_of([{"do": "skip", "query_id": "never drawn", "by": "ada"}])
    with pytest.raises(InputError, match="lacks 'query_id'"):
        questions_of([{"do": "draw"}])

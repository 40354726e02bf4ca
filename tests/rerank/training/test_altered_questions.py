"""Altered questions: one change, on the passage's topic, that the passage does not answer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.training.mining import ANTONYMS, alter

PASSAGE = (
    "The tower was designed by Gustave Eiffel and opened in 1889. In Paris it stands 330 metres "
    "high, near the Champ de Mars, which Stephen Sauvestre had chosen in 1884."
)


def all_altered(question: str, passage: str = PASSAGE) -> set[str | None]:
    return {alter(question, passage, random.Random(seed)) for seed in range(200)}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        # another name of the passage, as long as a name of the question; its own word stays
        (
            "who hired Gustave Eiffel there",
            {
                "who hired Paris there",
                "who hired Champ de Mars there",
                "who hired Stephen Sauvestre there",
            },
        ),
        ("who came in 1889", {"who came in 1884"}),  # another number of as many digits
        ("who has 330 of them", {"who has 661 of them", "who has 991 of them"}),  # or a multiple
        ("which is the largest tower", {"which is the smallest tower"}),
        ("why did it start", {"why didn't it start", "why did it stop"}),
        (
            "whose is Eiffel's tower",
            {"whose is Paris's tower", "whose is Stephen Sauvestre's tower"},
        ),
    ],
)
def test_one_change(question: str, expected: set[str]) -> None:
    """Each rule makes what it says, from the passage where it can, and nothing else."""
    found = all_altered(question) - {None}
    negated = {text for text in found if text and "n't" in text} - expected
    assert found - negated == expected


def test_a_name_shares_no_word_with_the_one_it_replaces() -> None:
    """Nor with another name of the question: that would ask about the same thing."""
    assert all_altered("what of Mr Eiffel", "It was Gustave Eiffel who met Mr Eiffel.") == {None}


@pytest.mark.parametrize(
    "question",
    [
        "how many are there",
        "Is it true",
        "why isn't it so",
        "what of it",
        "",
        "where is it not seen",
    ],
)
def test_a_question_that_no_rule_fits_stays(question: str) -> None:
    """Nothing to exchange; a number asked for and a question of yes or no are not negated."""
    assert all_altered(question.replace("true", "so"), "No name, no number.") == {None}


@pytest.mark.parametrize("question", ["is it old", "how many were lost", "does it start or stop"])
def test_what_answers_it_answers_its_opposite(question: str) -> None:
    """A question of yes or no, or of how many, has the same answer in the passage, or "no"."""
    assert all_altered(question) == {None}


def test_antonyms_go_both_ways() -> None:
    """What a word becomes can become that word again."""
    for word, others in ANTONYMS.items():
        assert word not in others
        assert all(word in ANTONYMS[other] for other in others)


@given(st.text(max_size=60), st.text(max_size=120), st.integers(0, 99))
def test_any_text_is_altered_or_left(question: str, passage: str, seed: int) -> None:
    """It never fails and never gives the question back; a seed gives the same again."""
    first, again = (alter(question, passage, random.Random(seed)) for _ in range(2))
    assert first == again
    assert first != question

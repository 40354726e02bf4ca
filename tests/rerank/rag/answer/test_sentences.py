"""Answers cut into sentences, each with its citations."""

from __future__ import annotations

import pytest

from rerank.rag.answer.sentences import sentences, split


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The cat sat [S1].", [("The cat sat.", ("S1",))]),
        (
            "The cat sat. [S1] It left [S2][S3].",
            [("The cat sat.", ("S1",)), ("It left.", ("S2", "S3"))],
        ),
        ("Both [S1, S2]. Nothing.", [("Both.", ("S1", "S2")), ("Nothing.", ())]),
        ('"It is quoted" [S1].', [("It is quoted.", ("S1",))]),
        ("- one [S1]\n- two [S2]", [("one", ("S1",)), ("two", ("S2",))]),
        ("1. One [S1].\n 12. Two [S2].", [("One.", ("S1",)), ("Two.", ("S2",))]),
        ("It costs 3.5 euro, e.g. here [S1].", [("It costs 3.5 euro, e.g. here.", ("S1",))]),
        ("It sat [S1].It left [S2].", [("It sat.", ("S1",)), ("It left.", ("S2",))]),
        ("It sat.[S1]It left [S2].", [("It sat.", ("S1",)), ("It left.", ("S2",))]),
        (
            "It sat (up).It left!So [S2].",
            [("It sat (up).", ()), ("It left!", ()), ("So.", ("S2",))],
        ),
        ("a.Bc of f(a).Map(b), x?Y=1 [S1].", [("a.Bc of f(a).Map(b), x?Y=1.", ("S1",))]),
        ("", []),
        ("[S1] ...", []),
    ],
)
def test_sentences_by_hand(answer: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    """A citation belongs to its sentence, before its full stop or behind it."""
    assert [(s.claim, s.cited) for s in sentences(answer)] == expected


def test_no_sentence_ends_after_an_abbreviation() -> None:
    """The list is that of the passages."""
    text = "Ask Mrs. Low, cf. Smith, e.g. Here, of Fig. 3 or No. 4 vs. Five."
    assert split(text) == [text]


def test_split_keeps_every_word() -> None:
    """Nothing but white space is lost."""
    text = "One is here. Two?! Three (v1.2) ends.\nFour"
    assert split(text) == ["One is here.", "Two?!", "Three (v1.2) ends.", "Four"]


def test_a_wrapped_line_ends_no_sentence() -> None:
    """A long line that goes on in lower case does not; a short one, and a list item, do."""
    wrapped = (
        "This fills each gap with the last value, where\n    the last one is known. And so on."
    )
    assert split(wrapped) == [wrapped.partition(" And")[0], "And so on."]
    long = "a line that is as long as a line of text often is"
    for end in ("\n\n", "\n \n", "\n- ", "\nA ", "\n1. "):
        assert len(split(f"{long}{end}next")) == 2
    assert split("axis : int\nout : array") == ["axis : int", "out : array"]

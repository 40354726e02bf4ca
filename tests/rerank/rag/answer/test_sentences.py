"""Answers cut into sentences, each with its citations."""

from __future__ import annotations

import pytest

from rerank.rag.answer.sentences import sentences, split, split_passage


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


@pytest.mark.parametrize(
    "text",
    [
        "See no. 7, fig. 2 and Art. 5 for approx. 5 minutes.",
        "Er gilt vom 5. Mai bis zum 12. und 13. Juni, z. B. am Montag, d. h. bald.",
    ],
)
def test_no_sentence_ends_after_what_a_number_follows_or_a_german_ordinal(text: str) -> None:
    """Nor within "z. B."; but a word of the same letters ends one, and so does a year."""
    assert split(text) == [text]
    assert len(split("He said no. She left in 2019. Then it rained.")) == 3


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


WRAPPED = "Pairwise correlation is computed between rows or columns of"


@pytest.mark.parametrize("after", ["DataFrame with rows of Series.", "``nan`` and other values."])
def test_a_sentence_of_a_passage_goes_on_in_the_next_line(after: str) -> None:
    """Also before a capital: the next word had no room in a line of this width."""
    text = f"{WRAPPED}\n{after}"
    assert split_passage(text) == [text]
    item = f"- {WRAPPED}\n  {after}"
    assert split_passage(item) == [item[2:]]


@pytest.mark.parametrize(
    "text",
    [
        f"{WRAPPED}.\nDataFrame with rows of Series.",
        f"{WRAPPED}:\nDataFrame with rows of Series.",
        f"{WRAPPED}\n\nDataFrame with rows of Series.",
        f"{WRAPPED}\n- DataFrame with rows of Series.",
        f"{WRAPPED}\nSee Also",  # a label
        f"{WRAPPED}\n    DataFrame with rows of Series.",  # code
        f"{WRAPPED}\nFrame = DataFrame(rows, columns, Series)",
        f"{WRAPPED} | rows\nDataFrame with columns | rows",
        f"# {WRAPPED}\nDataFrame with rows of Series.",
        f"{WRAPPED}\n{'=' * len(WRAPPED)}",
        f"{WRAPPED}\nDataFrame with rows of Series, as this line has far more room than that.",
        "Inverse of isna\nDataFrame with rows of Series.",
    ],
)
def test_other_lines_of_a_passage_end_their_sentence(text: str) -> None:
    """Those of headings, lists, tables and code, and a line that had room for the next word."""
    assert len(split_passage(text)) == 2


def test_a_passage_is_split_as_other_text_but_for_its_wrapped_lines() -> None:
    """Short lines, lines that go on in lower case, and the mark of a list item."""
    text = "axis : int\nThe axis.\n- One? Two.\n1. Three"
    assert (
        split_passage(text) == split(text) == ["axis : int", "The axis.", "One?", "Two.", "Three"]
    )
    lower = f"{WRAPPED}\n    many frames. And so on."
    assert split_passage(lower) == split(lower)

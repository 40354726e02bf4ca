"""Questions made of a corpus: its own ones first, then about headings; each once."""

from __future__ import annotations

import pytest

from rerank.labelling.labels import propose, question_of
from rerank.types import Passage


@pytest.mark.parametrize(
    ("passage", "question", "own"),
    [
        (Passage("1", "FAQ", "How do I reset it? Press R. Why?"), "How do I reset it?", True),
        (Passage("2", "What is a valve?", "A part."), "What is a valve?", True),
        (
            Passage("3", "Guide", "Open it.", {"heading": "Pump > Starting the pump"}),
            "What does the documentation say about Starting the pump?",
            False,
        ),
        (Passage("4", "", "No heading. Is it? Yes."), "", False),
        (Passage("10", "x" * 301, "Its title is too long."), "", False),
        (
            Passage("6", "Guide", "[ < ] | [Top] | [ ? ]", {"heading": "Guide > 23.2.4 Seals"}),
            "What does the documentation say about Seals?",
            False,
        ),
        (Passage("7", "3.15: Why does it leak?", "It is worn."), "Why does it leak?", True),
        (Passage("9", "", "Set the style to ‘?’ or to ‘*’."), "", False),
        (Passage("8", "2.1 ***", "A rule."), "", False),
        (Passage("5", "Menu", "起動方法は？\n押す"), "起動方法は？", True),
    ],
)
def test_the_question_of_a_passage(passage: Passage, question: str, own: bool) -> None:
    """A first sentence or a heading that asks, else the heading, else nothing."""
    assert question_of(passage) == (question, own)


def test_each_question_once_and_those_of_the_corpus_first() -> None:
    """As many as asked for, with an id of its own."""
    corpus = [Passage(str(i), f"Part {i % 3}", "Some text.") for i in range(9)]
    corpus.append(Passage("faq", "Help", "Where is it? There."))
    found = propose(corpus, 3)
    assert found[0].text == "Where is it?"
    assert len({query.query_id for query in found}) == len({query.text for query in found}) == 3
    assert len(propose(corpus, 99)) == 4

"""Words that expand a query: RM3's relevance model, by hand."""

from __future__ import annotations

import numpy as np
from hand_made import EnglishWords

from rerank.advice.adaptive import expansion_words
from rerank.types import Passage


def expanded(query: str, *texts: str, relevance: list[float], common: str = "the") -> list[str]:
    return expansion_words(
        query,
        [Passage(str(i), "", text) for i, text in enumerate(texts)],
        np.array(relevance),
        EnglishWords(lambda word: 0.0 if word == common else 5.0),
    )


def test_the_likeliest_words_of_relevant_passages_come_first() -> None:
    """P(w | R): nan .8 / 3 + .1 / 2, axis .8 / 3, mean .1 / 2; "the" and the query's own do not."""
    found = expanded("median the", "median nan axis", "nan mean", relevance=[0.8, 0.1])
    assert found == ["nan", "axis"]  # as many as the query has


def test_words_are_spelled_as_they_were_written() -> None:
    """The stem counts, the word is told."""
    assert expanded("sorting", "sorts arrays quickly", relevance=[1.0]) == ["arrays"]


def test_passages_without_relevance_add_nothing_that_leads() -> None:
    """Their words come behind those of any relevant passage."""
    assert expanded("one", "two", "three", relevance=[0.0, 0.5]) == ["three"]
    assert expanded("one", relevance=[]) == []

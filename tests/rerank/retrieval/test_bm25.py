"""BM25: the very scores of rank_bm25's BM25Okapi, on real text and on any text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from rerank.data.labelled_set import LabelledSet
from rerank.data.words import words
from rerank.retrieval.bm25 import BM25


@pytest.fixture(scope="module")
def documents(texts: list[str]) -> list[list[str]]:
    return [words(t) for t in texts]


@pytest.fixture(scope="module")
def asked(small: LabelledSet) -> list[list[str]]:
    return [words(q.text) for q in small.queries.values()]


def test_scores_are_those_of_rank_bm25(documents: list[list[str]], asked: list[list[str]]) -> None:
    """Every passage's score for every real query is BM25Okapi's, to 1e-9."""
    ours, oracle = BM25.build(documents), BM25Okapi(documents)
    for query in asked:
        np.testing.assert_allclose(ours.scores(query), oracle.get_scores(query), rtol=0, atol=1e-9)


def test_weights_are_the_idf_of_rank_bm25(documents: list[list[str]]) -> None:
    """A word's idf is BM25Okapi's; that of a word of no passage is the rarest one's."""
    ours, oracle = BM25.build(documents), BM25Okapi(documents)
    for word, idf in oracle.idf.items():
        assert ours.idf(word) == pytest.approx(idf, abs=1e-12)
    assert ours.idf("nosuchword") == max(oracle.idf.values())


WORDS = st.sampled_from(["a", "b", "c", "d", "e"])
DOCUMENTS = st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=8).filter(any)


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, query=st.lists(st.one_of(WORDS, st.just("absent")), max_size=6))
def test_scores_are_those_of_rank_bm25_on_any_corpus(
    documents: list[list[str]], query: list[str]
) -> None:
    """Empty passages, repeated query words and words in every passage score as in BM25Okapi."""
    expected = BM25Okapi(documents).get_scores(query)
    np.testing.assert_allclose(BM25.build(documents).scores(query), expected, rtol=0, atol=1e-9)


def test_one_score_by_hand() -> None:
    """The score of a word in one of three passages is idf * tf (k1 + 1) / (tf + K), by hand."""
    model = BM25.build([["gap", "gap", "fill"], ["fill"], ["drop", "row"]])
    idf = np.log(3 - 1 + 0.5) - np.log(1 + 0.5)  # in 1 of 3 passages
    k = 1.5 * (1 - 0.75 + 0.75 * 3 / 2)  # 3 words, mean length 2; k1 = 1.5, b = 0.75
    assert model.scores(["gap"]) == pytest.approx([idf * 2 * 2.5 / (2 + k), 0, 0], abs=1e-12)


def test_a_corpus_without_a_word_scores_nothing() -> None:
    """Passages of punctuation alone are indexed, and match no query."""
    model = BM25.build([[], [], []])
    assert model.scores(["fill"]).tolist() == [0.0, 0.0, 0.0]
    assert model.scores([]).tolist() == [0.0, 0.0, 0.0]


def test_a_model_is_the_same_after_saving(
    tmp_path: Path, documents: list[list[str]], asked: list[list[str]]
) -> None:
    """Saved and opened again, every score is the same to the bit."""
    model = BM25.build(documents)
    model.save(tmp_path)
    again = BM25.open(tmp_path)
    for query in asked:
        assert np.array_equal(model.scores(query), again.scores(query))
    assert again.terms == model.terms
    assert again.size == len(documents)


def test_the_order_of_passages_only_permutes_the_scores(
    documents: list[list[str]], asked: list[list[str]]
) -> None:
    """A corpus in another order gives each passage the score it had."""
    shuffled = np.random.default_rng(0).permutation(len(documents))
    model = BM25.build(documents)
    other = BM25.build([documents[i] for i in shuffled])
    for query in asked[:20]:
        np.testing.assert_allclose(other.scores(query), model.scores(query)[shuffled], atol=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # the stems are those of Porter's own sample list for English (Snowball)
        ("Connections, connected_connecting", ["connect", "connect", "connect"]),
        ("numpy.linspace(0, 10)", ["numpi", "linspac", "0", "10"]),
        ("  ", []),
    ],
)
def test_words_are_snowball_stems(text: str, expected: list[str]) -> None:
    """Words are lower-case stems, split at punctuation and underscores."""
    assert words(text) == expected


def test_marks_belong_to_their_words() -> None:
    """Vowel signs do not cut a word, and an accent is the same composed or combining."""
    assert words("हिन्दी भाषा", language="none") == ["हिन्दी", "भाषा"]
    assert words("cafe\u0301") == words("caf\u00e9")


def test_language_none_keeps_words_whole() -> None:
    """Without a language nothing is stemmed."""
    assert words("Fillna_missing Größe", language="none") == ["fillna", "missing", "grösse"]

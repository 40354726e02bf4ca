"""What speaks for a passage: a table by hand, and the rows that the pipeline computes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hand_made import EnglishWords
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from rerank.assessment.passage_features import (
    FIRST_STAGE,
    PASSAGE_FEATURES,
    cross_encoder_features,
    first_stage_features,
    lead,
)
from rerank.data.words import content_words, words, words_in_sentences
from rerank.retrieval.index import Index
from rerank.types import FirstStage, Passage, Ranking

IDF = {"fill": 2.0, "miss": 1.0, "valu": 1.0}


def seen(
    query: str, passages: Sequence[tuple[str, str]], numbers: dict[str, Any] | None = None
) -> np.ndarray:
    """Features of passages (title, text), with numbers that are constant unless given."""
    n = len(passages)
    given = {
        "bm25": [0.0] * n,
        "dense": [0.0] * n,
        "bm25_rank": [1] * n,
        "dense_rank": [1] * n,
        "fused": [1.0] * n,
        "logits": [0.0] * n,
        "scored": [True] * n,
    } | (numbers or {})
    arrays = {name: np.array(values, dtype=np.float64) for name, values in given.items()}
    logits, scored = arrays.pop("logits"), arrays.pop("scored").astype(np.bool_)
    texts = [Passage(f"d{i}", title, text) for i, (title, text) in enumerate(passages)]
    stage = FirstStage(rows=np.arange(n), **arrays)
    lexicon = EnglishWords(lambda w: IDF.get(w, 3.0))
    first = first_stage_features(query, texts, stage, lexicon)
    return np.column_stack([cross_encoder_features(logits, scored), first])


def test_the_table_by_hand() -> None:
    """Every column of two passages, worked out from its docstring."""
    X = seen(
        "fill missing values",
        [("fillna", "Fill missing values, fast."), ("Fill", "Values. They are missing")],
        {
            "bm25": [2.0, 5.0],
            "dense": [0.7, 0.4],
            "bm25_rank": [3, 1],
            "dense_rank": [1, 101],
            "fused": [0.02, 0.03],
            "logits": [1.5, -0.5],
            "scored": [True, False],
        },
    )
    expected = {
        "logit": [1.5, -0.5],
        "logit_lead": [2.0, -2.0],
        "unscored": [0.0, 1.0],
        "cosine": [0.7, 0.4],
        "cosine_lead": [0.3, -0.3],
        "bm25_of_best": [0.4, 1.0],
        "bm25_a_word": [2 / 3, 5 / 3],
        "bm25_log_rank": [math.log(3), 0.0],
        "dense_log_rank": [0.0, math.log(101)],
        "fused_log_rank": [math.log(2), 0.0],
        # of three words and two pairs; one more of each that is nowhere counts in
        "term_coverage": [3 / 4, 3 / 4],  # the title counts
        "idf_coverage": [3 / 4, 0.5 * 3 / 4],  # it does not: missing and values are 2 of 4
        "sentence_coverage": [3 / 4, 0.25 * 3 / 4],  # its two sentences have one each
        "content_lead": [0.25 * 3 / 4, -0.25 * 3 / 4],  # fill in the second's title, one more
        "title_coverage": [0.0, 0.5 * 3 / 4],  # "fillna" is another word; fill is 2 of 4
        "bigram_coverage": [2 / 3, 0.0],
        "log_length": [math.log(5), math.log(5)],
    }
    assert set(expected) == set(PASSAGE_FEATURES)
    for k, name in enumerate(PASSAGE_FEATURES):
        assert X[:, k].tolist() == pytest.approx(expected[name], abs=1e-12), name


def test_repeated_query_words_count_once() -> None:
    """A word asked twice weighs once in the coverage."""
    once, twice = (seen(q, [("", "fill it")]) for q in ("fill gaps", "fill fill gaps"))
    names = list(PASSAGE_FEATURES)
    for name in ("term_coverage", "idf_coverage"):
        assert once[0, names.index(name)] == pytest.approx(twice[0, names.index(name)])


def test_sums_are_in_the_order_of_the_query() -> None:
    """However a passage or a set orders its words, so every bit is the same in every process."""
    idf = {"fill": 0.1, "miss": 0.2, "valu": 0.3}
    lexicon = EnglishWords(lambda w: idf[w])
    one = np.ones(1)
    stage = FirstStage(
        rows=np.arange(1), bm25=one, dense=one, bm25_rank=one, dense_rank=one, fused=one
    )
    for title, text in (("", "Values missing, fill"), ("missing fill values", "fill")):
        X = first_stage_features(
            "fill missing missing values", [Passage("d", title, text)], stage, lexicon
        )
        column = list(FIRST_STAGE).index("title_coverage" if title else "sentence_coverage")
        assert X[0, column] == (0.1 + 0.2 + 0.3) / ((0.1 + 0.2 + 0.3) * (1 + 1 / 3))


def test_one_word_is_never_found_whole() -> None:
    """A short question that a passage holds is covered less than a long one that it holds."""
    covered = [
        seen(query, [("", "fill missing values")])[0, list(PASSAGE_FEATURES).index("idf_coverage")]
        for query in ("fill", "fill missing", "fill missing values")
    ]
    assert covered == pytest.approx([1 / 2, 2 / 3, 3 / 4])


def test_a_lead_is_over_the_best_other() -> None:
    """The best leads by its margin, the rest trail it; equal bests have none, nor has one alone."""
    assert lead(np.array([3.0, 7.0, 4.0])).tolist() == [-4.0, 3.0, -3.0]
    assert lead(np.array([7.0, 7.0, 4.0])).tolist() == [0.0, 0.0, -3.0]
    assert lead(np.array([7.0])).tolist() == [0.0]


def test_stop_words_do_not_lead() -> None:
    """A passage that has the question's form and not its object gains nothing by it."""
    X = seen("how do I fill it", [("", "How do I plot it?"), ("", "Fill the gaps")])
    assert X[:, list(PASSAGE_FEATURES).index("content_lead")].tolist() == [-0.5, 0.5]
    X = seen("who is it", [("", "Who is it?"), ("", "Fill the gaps")])
    assert X[:, list(PASSAGE_FEATURES).index("content_lead")].tolist() == [3 / 4, -3 / 4]


def test_content_words_are_words_less_stop_words() -> None:
    """Of a language without a list every word is one; stems are those of `words`."""
    assert content_words("How do I fill the gaps?") == words("fill gaps")
    assert content_words("How do I fill", language="none") == ["how", "do", "i", "fill"]


def test_no_candidate_gives_no_row() -> None:
    """An empty ranking has a matrix of the right width."""
    assert seen("fill", []).shape == (0, len(PASSAGE_FEATURES))


def test_sentences_end_where_a_reader_ends_them() -> None:
    """At a stop before a space, at a full-width stop, and at the line; not within a number."""
    text = "Version 2.0 runs. Does it? Yes: always\nThe end\u3002终于"
    said, numbers = words_in_sentences(text, language="none")
    expected = ["version 2 0 runs", "does it", "yes", "always", "the end", "终于"]
    assert [
        " ".join(word for word, n in zip(said, numbers, strict=True) if n == sentence)
        for sentence in range(max(numbers) + 1)
    ] == expected


@given(st.text())
def test_the_words_of_the_sentences_are_the_words_of_the_text(text: str) -> None:
    """Nothing is lost, added or moved where a sentence ends."""
    assert words_in_sentences(text)[0] == words(text)


@settings(max_examples=100, deadline=None)
@given(
    query=st.text(max_size=12),
    passages=st.lists(st.tuples(st.text(max_size=6), st.text(max_size=12)), min_size=1, max_size=5),
    constant=st.floats(-1e6, 1e6),
)
def test_every_value_is_finite(
    query: str, passages: list[tuple[str, str]], constant: float
) -> None:
    """Whatever the words, and with constant scores, no value is NaN or infinite."""
    X = seen(query, passages, {"logits": [constant] * len(passages)})
    assert X.shape == (len(passages), len(PASSAGE_FEATURES))
    assert np.isfinite(X).all()


def test_real_features_are_those_of_the_candidates(
    rankings: Mapping[str, Ranking], index: Index
) -> None:
    """On real text the columns follow from the candidates, with coverage counted here."""
    names = list(PASSAGE_FEATURES)
    for ranking in list(rankings.values())[:20]:
        X, c = ranking.features, ranking.first_stage
        assert np.isfinite(X).all()
        np.testing.assert_array_equal(X[:, names.index("cosine")], c.dense)
        np.testing.assert_array_equal(X[:, names.index("logit")], ranking.logits)
        places = np.exp(X[:, names.index("fused_log_rank")])
        assert (places >= rankdata(-c.fused, method="min") - 1e-9).all()
        assert (places <= rankdata(-c.fused, method="max") + 1e-9).all()
        asked = set(words(ranking.query.text))
        for k, passage in enumerate(ranking.passages):
            text = set(words(passage.text))
            found = sum(index.bm25.idf(w) for w in asked & text)
            shrunk = len(asked) / (len(asked) + 1)
            expected = shrunk * found / sum(index.bm25.idf(w) for w in asked)
            assert X[k, names.index("idf_coverage")] == pytest.approx(expected, abs=1e-9)
            share = len(asked & (text | set(words(passage.title)))) / (len(asked) + 1)
            assert X[k, names.index("term_coverage")] == pytest.approx(share, abs=1e-12)


def test_a_long_passage_takes_time_in_proportion() -> None:
    """Two words, each there thousands of times and never neighbours in this order."""
    long = "gap " * 7_000 + "fill " * 7_000
    assert seen("gap fill", [("", long)])[0, list(PASSAGE_FEATURES).index("bigram_coverage")] == 0.5
    assert seen("fill gap", [("", long)])[0, list(PASSAGE_FEATURES).index("bigram_coverage")] == 0


def test_a_query_without_a_pair_of_words_lacks_none() -> None:
    """One word, also if it is repeated, is covered as a word."""
    names = list(PASSAGE_FEATURES)
    for query in ("fill", "fill fill fill"):
        found = seen(query, [("", "fill the gaps"), ("", "sort them")])
        assert found[:, names.index("bigram_coverage")].tolist() == [0.5, 0.0]

"""The features: a table worked out by hand, and that every value is finite whatever comes in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_made import make_ranking
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.ranking_features import (
    GROUPS,
    RANKING_FEATURES,
    mean_ranks,
    meaning,
    ranking_features,
    spearman,
)
from rerank.types import Ranking


def log_odds(p: float) -> float:
    return math.log(p / (1 - p))


@pytest.fixture(scope="module")
def table() -> Ranking:
    """Three passages with round numbers; the third was not scored by the cross-encoder."""
    return make_ranking(
        query="fill missing values",  # three words
        texts=["fill the gaps", "drop the gaps", "plot a line"],
        logits=[2.0, 3.0, 2.0],
        scored=[True, True, False],
        truncated=[True, False, False],
        bm25=[4.0, 6.0, 2.0],
        dense=[0.6, 0.3, 0.9],
        bm25_rank=[2, 1, 11],
        dense_rank=[2, 11, 1],
        fused=[0.3, 0.2, 0.1],
        score=[0.8, 0.5, 0.2],
        features={
            "term_coverage": [0.25, 0.5, 0.75],
            "idf_coverage": [0.3, 0.9, 0.6],
            "sentence_coverage": [0.2, 0.9, 0.6],
            "title_coverage": [0.1, 0.2, 0.3],
            "bigram_coverage": [0.4, 0.0, 0.0],
        },
    )


BY_HAND = {  # each worked out from the definition in the docstring, with pencil and paper
    "top_score": log_odds(0.8),
    "score_margin": log_odds(0.8) - log_odds(0.5),
    "score_none": (math.log(0.2) + math.log(0.5) + math.log(0.8)) / 3,
    "score_share": 0.8 / 1.5,
    "top_logit": 3.0,
    "winner_logit_gap": -1.0,
    "logit_margin": 1.0,  # 3 - 2, of the two that were scored
    "logit_margin_k": 1.0,
    "logit_mean": 2.5,
    "logit_spread": 0.5,
    "logit_consensus": 1.0,  # 2 >= 3 - 1
    "passages_scored": 2.0,
    "reranker_impact": -1.0,  # fused .3 > .2, logits 2 < 3
    "top_cosine": 0.9,
    "cosine_margin": 0.3,
    "winner_cosine_gap": -0.3,
    "bm25_margin": (6 - 4) / 6,
    "stage_correlation": -1.0,  # BM25 2 < 4 < 6 as cosine .9 > .6 > .3
    "stage_overlap": 0.1,  # one passage in the first ten of both
    "winner_bm25_rank": math.log(2),
    "winner_dense_rank": math.log(2),
    "bm25_nqc": math.sqrt(8 / 3) / 4,
    "bm25_wig": 0.0,  # fewer than five: the top is all
    "log_list_length": math.log(3),
    "dense_wig": 0.0,
    "winner_term_coverage": 0.25,
    "winner_idf_coverage": 0.3,
    "winner_sentence_coverage": 0.2,
    "winner_title_coverage": 0.1,
    "winner_bigram_coverage": 0.4,
    "top_idf_coverage": 0.9,
    "query_length": math.log(3),
    # {fill the gaps} and {drop the gaps} share 2 of 4 words; the third shares none with either
    "diversity": (0.5 + 1 + 1) / 3,
    "truncation": 0.5,
}


@pytest.mark.parametrize("name", RANKING_FEATURES)
def test_each_feature_make_ranking(table: Ranking, name: str) -> None:
    """The feature has the value worked out by hand; a new one needs a line in the table."""
    assert RANKING_FEATURES[name](table) == pytest.approx(BY_HAND[name], abs=1e-12)


def test_wig_make_ranking() -> None:
    """Of six passages the top five's mean less the mean, BM25's over the root of query words."""
    made = make_ranking(
        query="a b c d",
        texts=["x"] * 6,
        bm25=[10, 8, 6, 4, 2, 0],
        dense=[0.9, 0.7, 0.5, 0.3, 0.1, -0.1],
    )
    assert RANKING_FEATURES["bm25_wig"](made) == pytest.approx((6 - 5) / 2, abs=1e-12)
    assert RANKING_FEATURES["dense_wig"](made) == pytest.approx(0.5 - 0.4, abs=1e-12)


def test_stages_agree_on_nothing_that_one_of_them_did_not_find() -> None:
    """In a list of three, passages without a word of the query have a rank below ten as well."""
    ranks = {"bm25_rank": [1, 4, 4], "dense_rank": [1, 2, 3]}
    one = make_ranking(query="a", texts=["a", "b", "c"], bm25=[2.0, 0.0, 0.0], **ranks)
    assert RANKING_FEATURES["stage_overlap"](one) == 0.1


def test_the_matrix_has_the_tables_columns(table: Ranking) -> None:
    """A row a ranking, columns in the order of RANKING_FEATURES; zeros where nothing was found."""
    X = ranking_features([table, make_ranking(), table])
    assert X.shape == (3, len(RANKING_FEATURES))
    assert X[0].tolist() == pytest.approx([BY_HAND[name] for name in RANKING_FEATURES], abs=1e-12)
    assert X[1].tolist() == [0.0] * len(RANKING_FEATURES)
    assert X[2].tolist() == X[0].tolist()
    assert ranking_features([]).shape == (0, len(RANKING_FEATURES))


def test_there_are_at_least_fifteen_and_each_says_what_it_means() -> None:
    """Every feature has a meaning in words before its formula."""
    assert len(RANKING_FEATURES) >= 15
    meanings = [meaning(name) for name in RANKING_FEATURES]
    assert len(set(meanings)) == len(meanings)
    for name, text in zip(RANKING_FEATURES, meanings, strict=True):
        assert text != name
        assert len(text.split()) >= 2
        assert ":" in (RANKING_FEATURES[name].__doc__ or "")


def test_every_feature_is_in_one_group() -> None:
    """A new feature needs a place in the table that reports are made by."""
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(RANKING_FEATURES)


ALONE = {  # one passage: a missing second counts as the lowest, a correlation of one is 0
    "score_share": 1.0,
    "logit_margin": 0.0,
    "logit_margin_k": 0.0,
    "logit_spread": 0.0,
    "logit_consensus": 1.0,
    "passages_scored": 1.0,
    "reranker_impact": 0.0,
    "cosine_margin": 0.0,
    "bm25_margin": 1.0,
    "stage_correlation": 0.0,
    "bm25_nqc": 0.0,
    "bm25_wig": 0.0,
    "diversity": 0.0,
}


@pytest.mark.parametrize("name", ALONE)
def test_one_candidate_has_defined_values(name: str) -> None:
    """With a single passage each feature takes the value its docstring promises."""
    made = make_ranking(texts=["alone"], logits=[1.5], bm25=[3.0], dense=[0.4], score=[0.6])
    assert RANKING_FEATURES[name](made) == pytest.approx(ALONE[name], abs=1e-12)


def test_constant_scores_have_defined_values() -> None:
    """Where every passage scores the same, margins and correlations are 0, and all is finite."""
    made = make_ranking(texts=["same"] * 4, logits=[1.0] * 4)
    row = dict(zip(RANKING_FEATURES, ranking_features([made])[0], strict=True))
    assert all(math.isfinite(v) for v in row.values())
    for name in ("logit_margin", "logit_spread", "reranker_impact", "stage_correlation"):
        assert row[name] == 0.0
    assert row["diversity"] == 0.0


NUMBERS = st.floats(-1e6, 1e6)
UNIT = st.floats(0, 1)


@st.composite
def odd_rankings(draw: st.DrawFn) -> dict[str, Any]:
    """Numbers of any ranking: none, one or many passages, with extremes and ties."""
    n = draw(st.integers(0, 7))

    def some(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    return {
        "query": draw(st.text(max_size=8)),
        "texts": some(st.text(max_size=8)),
        "logits": some(NUMBERS),
        "scored": some(st.booleans()),
        "truncated": some(st.booleans()),
        "bm25": some(st.floats(0, 1e4)),
        "dense": some(st.floats(-1, 1)),
        "bm25_rank": some(st.integers(1, 101)),
        "dense_rank": some(st.integers(1, 101)),
        "fused": some(st.floats(1e-6, 1)),
        "score": some(st.one_of(UNIT, st.sampled_from([0.0, 1.0]))),
        "features": {name: some(UNIT) for name in PASSAGE_FEATURES},
    }


@settings(max_examples=150, deadline=None)
@given(numbers=odd_rankings())
def test_every_feature_is_finite(numbers: dict[str, Any]) -> None:
    """No ranking, however odd, gives NaN or infinity."""
    assert np.isfinite(ranking_features([make_ranking(**numbers)])).all()


def test_negative_bm25_scores_stay_in_range() -> None:
    """BM25Okapi's scores fall below 0 in a corpus of two passages; shares of them stay small."""
    made = make_ranking(texts=["fill", "fill"], bm25=[-0.1, -0.2])
    assert abs(RANKING_FEATURES["bm25_margin"](made)) <= 1
    assert abs(RANKING_FEATURES["bm25_nqc"](made)) <= 10


def test_real_rankings_have_finite_features(rankings: Mapping[str, Ranking]) -> None:
    """Real text gives finite numbers, and hardly a feature that says the same of every query."""
    X = ranking_features(list(rankings.values()))
    assert np.isfinite(X).all()
    constant = [
        name for name, span in zip(RANKING_FEATURES, np.ptp(X, axis=0), strict=True) if span == 0
    ]
    assert len(constant) <= 1, constant


def test_the_order_below_the_winner_does_not_matter(rankings: Mapping[str, Ranking]) -> None:
    """Features see which passage won and the set of the others, up to the first few."""
    ranking = next(iter(rankings.values()))
    head = list(range(len(ranking)))
    head[1], head[2] = head[2], head[1]
    swapped = ranking.take(np.array(head))
    np.testing.assert_allclose(
        ranking_features([swapped]), ranking_features([ranking]), rtol=0, atol=1e-12
    )


def test_new_ids_change_nothing(rankings: Mapping[str, Ranking]) -> None:
    """No feature looks at a passage's id."""
    ranking = next(iter(rankings.values()))
    passages = tuple(replace(p, doc_id=f"x{p.doc_id}") for p in ranking.passages)
    renamed = replace(ranking, candidates=replace(ranking.candidates, passages=passages))
    assert np.array_equal(ranking_features([renamed]), ranking_features([ranking]))


# --- rank correlation -------------------------------------------------------------------------

TIED = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12)


@given(pairs=TIED)
def test_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    """With ties, to 1e-12, wherever scipy defines it; else 0."""
    a, b = (np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert spearman(a, b) == 0.0
        return
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


@given(st.lists(st.integers(-3, 3).map(float), max_size=12))
def test_mean_ranks_are_scipys(values: list[float]) -> None:
    """Equal values share the mean of their ranks, as scipy.stats.rankdata does."""
    assert mean_ranks(np.array(values)).tolist() == rankdata(values).tolist()

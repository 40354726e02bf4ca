"""Features of lists that come with their scores: a table by hand, and what must not change them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from calibration.maps import LogisticMap
from rerank.assessment.fitted_maps import features_of
from rerank.assessment.list_features import (
    LAST,
    STAGE,
    TEXT,
    _stage_features,
    fill_missing,
    stage_ranks,
)
from rerank.assessment.ranking import rank, read
from rerank.assessment.ranking_features import meaning, ranking_features
from rerank.assessment.sources.lists import ScoredLists
from rerank.config import Config
from rerank.errors import InputError
from rerank.types import Floats, ListKind, Passage, Query, Ranking, Scored

BARE = ListKind(("bm25", "reranker"), texts=False)
SCORES = {"bm25": np.array([4.0, 1.0, 2.0, np.nan]), "reranker": np.array([0.5, 3.0, np.nan, -1.0])}
TEXTS = ("Fill NA values.", "Draw a circle.", "Fill the missing values.", "Bake bread.")


def query(scores: dict[str, Floats] = SCORES, texts: tuple[str, ...] = ("",) * 4) -> Query:
    passages = tuple(Passage(f"d{i}", "", text) for i, text in enumerate(texts))
    return Query("fill missing values", "q", passages=passages, scores=scores)


def run(asked: Query, kind: ListKind) -> Scored:
    """The candidates of one query, with the scores that came with it."""
    lists = ScoredLists(kind, Config())
    candidates = lists.candidates(asked)
    selection = lists.select(candidates, np.zeros(len(candidates)), 0.0)
    return lists.with_scores(selection, np.zeros(0), np.zeros(0, dtype=np.bool_))


def ranked(asked: Query, kind: ListKind = BARE) -> Ranking:
    """The ranking by the score of the last stage alone."""
    scored = run(asked, kind)
    names = list(features_of(kind).passage)
    coef = tuple(float(name == "logit") for name in names)
    return rank(scored, LogisticMap(coef, 0.0, (0.0,) * len(names), (1.0,) * len(names)))


def test_of_passages_by_hand() -> None:
    """Where a stage did not bring the passage: its lowest score, and a rank behind all."""
    scored = run(query(), BARE)
    by_id = {p.doc_id: row for p, row in zip(scored.candidates.passages, range(4), strict=True)}
    X = read(scored).features[[by_id[f"d{i}"] for i in range(4)]]
    found = dict(zip(features_of(BARE).passage, X.T.tolist(), strict=True))
    assert found["logit"] == [0.5, 3.0, -1.0, -1.0]
    assert found["unscored"] == [0, 0, 1, 0]
    assert found["bm25.score"] == [4, 1, 2, 1]
    assert found["bm25.lead"] == [2, -3, -2, -3]
    assert found["bm25.absent"] == [0, 0, 0, 1]
    assert found["bm25.standing"] == pytest.approx((np.array([4, 1, 2, 1]) - 2) / np.sqrt(1.5))
    assert np.exp(found["bm25.log_rank"]) == pytest.approx([1, 3, 2, 4])
    assert np.exp(found["reranker.log_rank"]) == pytest.approx([2, 1, 4, 3])
    assert np.exp(found["fused_log_rank"]) == pytest.approx(
        [1, 3, 2, 4]
    )  # of bm25, the first stage
    first = [f"bm25.{name}" for name in STAGE]
    last = [f"reranker.{name}" for name in LAST]
    assert list(found) == ["logit", "logit_lead", "unscored", *first, *last, "fused_log_rank"]


@pytest.mark.parametrize(("n", "value"), [(3, 0.1), (6, 0.1), (3, 0.7), (10, 1 / 3)])
def test_equal_scores_stand_nowhere(n: int, value: float) -> None:
    """Their mean is rounded, so that each of them is a little beside it."""
    scores = np.full(n, value)
    assert abs(scores - scores.mean()).max() > 0
    assert not _stage_features(scores)["standing"].any()


def test_of_a_ranking_by_hand() -> None:
    """Of each stage, best passage first: here d1, the best of the reranker."""
    made = ranked(query())
    assert made.doc_ids[0] == "d1"
    table = features_of(BARE).ranking
    found = dict(zip(table, ranking_features([made], table)[0].tolist(), strict=True))
    expected = {
        "bm25.top": 4.0,
        "bm25.margin": 2.0,
        "bm25.margin_k": 4 - (2 + 1 + 1) / 3,
        "bm25.gain": 0.0,  # a list of four is all top
        "bm25.winner_gap": 1.0 - 4.0,
        "bm25.winner_rank": np.log(3),
        "reranker.top": 3.0,
        "reranker.margin": 2.5,
        "reranker.winner_gap": 0.0,
        "reranker.winner_rank": 0.0,
        "bm25.reranker.overlap": 2 / 4,  # d0 and d1 have both scores
        "log_list_length": np.log(4),
        "query_length": np.log(3),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert meaning("bm25.margin", table) == "Lead over the second by bm25"
    colon = features_of(ListKind(("es: v2",), texts=False)).ranking
    assert meaning("es: v2.margin", colon) == "Lead over the second by es: v2"
    groups = features_of(BARE).groups
    assert sorted(name for names in groups.values() for name in names) == sorted(table)


def test_stages_that_share_no_passage_have_no_overlap() -> None:
    """A passage that a stage did not return is not among its first ten, however short its list."""
    none = [np.nan] * 3
    made = ranked(
        query(
            {"bm25": np.array([3, 2, 1, *none]), "reranker": np.array([*none, 3, 2, 1])}, ("",) * 6
        )
    )
    assert features_of(BARE).ranking["bm25.reranker.overlap"](made) == 0.0


@pytest.mark.parametrize("tied", [19, 25])
def test_passages_that_share_the_first_rank_overlap_as_a_share(tied: int) -> None:
    """Ten of them are the first ten, however many share the highest score."""
    scores = np.array([2.0] * tied + [1.0] * 5)
    made = ranked(query({"bm25": scores, "reranker": scores}, ("",) * len(scores)))
    assert features_of(BARE).ranking["bm25.reranker.overlap"](made) == 1.0


def test_words_count_where_there_are_texts() -> None:
    """The features of our own rankings, every word weighing alike."""
    kind = ListKind(BARE.stages, texts=True)
    scored = run(query(texts=TEXTS), kind)
    found = dict(zip(features_of(kind).passage, read(scored).features.T.tolist(), strict=True))
    texts = [p.text for p in scored.candidates.passages]
    coverage = dict(zip(texts, found["term_coverage"], strict=True))
    assert [coverage[text] for text in TEXTS] == pytest.approx([2 / 4, 0, 3 / 4, 0])
    assert set(found) - set(features_of(BARE).passage) == set(TEXT)
    made, table = ranked(query(texts=TEXTS), kind), features_of(kind).ranking
    told = dict(zip(table, ranking_features([made], table)[0].tolist(), strict=True))
    assert told["winner_term_coverage"] == 0  # of d1
    with pytest.raises(InputError, match="no passage has a text"):
        run(query(), kind)
    some = run(query(texts=("", *TEXTS[1:])), kind)
    assert sorted(some.candidates.first_stage.rows.tolist()) == [1, 2, 3]


def test_scores_are_numbers_of_the_passages() -> None:
    """Plain lists will do, None for what a stage did not bring; all else is refused."""
    asked = query({"bm25": [4, None, 2, 1], "reranker": SCORES["reranker"]})  # type: ignore[dict-item]
    assert asked.scores_of(1) == {"bm25": None, "reranker": 3.0}
    for wrong in ([1.0, 2.0], ["a", "b", "c", "d"], [np.inf, 1, 1, 1], 3.0):
        with pytest.raises(InputError, match="expected one score of 'bm25' per passage, 4 in all"):
            query({"bm25": wrong})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="passages that come with them"):
        Query("x", scores={"bm25": np.zeros(0)})


def test_a_stage_may_have_any_name() -> None:
    """That of a group of features too: none of its own are lost."""
    table = features_of(ListKind(("score", "list"), texts=False)).ranking
    assert {"score.top", "list.top", "top_score", "log_list_length"} <= set(table)


NUMBERS = st.floats(-1e6, 1e6) | st.just(float("nan"))


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_features_are_finite(rows: list[tuple[float, float]]) -> None:
    """Whatever the scores are, and whatever lacks one."""
    table = np.array(rows)
    scores = {"bm25": table[:, 0], "reranker": table[:, 1]}
    made = ranked(query(scores, ("",) * len(rows)))
    assert np.isfinite(made.features).all()
    assert np.isfinite(ranking_features([made], features_of(BARE).ranking)).all()


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=12))
def test_ranks_are_scipys(values: list[int]) -> None:
    """Ties share the mean of their ranks; what a stage did not bring ranks behind all."""
    scores = np.array([*map(float, values), np.nan])
    assert stage_ranks(scores)[:-1] == pytest.approx(rankdata([-v for v in values]))
    assert stage_ranks(scores)[-1] == len(values) + 1
    assert fill_missing(scores)[-1] == min(values)


def test_a_list_of_nothing() -> None:
    """It is a list of every kind."""
    scored = run(Query("x", passages=()), BARE)
    assert len(scored) == 0
    assert read(scored).features.shape == (0, len(features_of(BARE).passage))

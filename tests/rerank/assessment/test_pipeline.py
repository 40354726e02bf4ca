"""Query to ranking: what is read, what is kept, and the order that people see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.maps import LogisticMap
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.pipeline import CHUNK, Pipeline, Reading, limit_scored, order
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.inference.cross_encoder import CrossEncoder
from rerank.retrieval.index import Index
from rerank.types import Query, Ranking
from rerank.workspace import score_cache

Make = Callable[..., Ranking]
NUMBERS = ("rows", "bm25", "dense", "bm25_rank", "dense_rank", "fused")


def same(one: Ranking, other: Ranking) -> bool:
    """Whether two rankings are equal to the bit, query ids aside."""
    arrays = [(getattr(one.candidates, n), getattr(other.candidates, n)) for n in NUMBERS]
    names = ("logits", "read", "truncated", "evidence", "relevance")
    arrays += [(getattr(one, n), getattr(other, n)) for n in names]
    return one.passages == other.passages and all(np.array_equal(a, b) for a, b in arrays)


def by_evidence(name: str, weight: float = 1.0) -> LogisticMap:
    """A relevance map that looks at one column alone."""
    coef = [weight if column == name else 0.0 for column in PASSAGE_FEATURES]
    return LogisticMap(tuple(coef), 0.0, (0.0,) * len(coef), (1.0,) * len(coef))


FUSED = Reading(by_evidence("fused_log_rank", -1.0))


@pytest.fixture(scope="module")
def some(small: LabelledSet) -> list[Query]:
    return list(small.queries.values())[:4]


@pytest.fixture(scope="module")
def rankings(pipeline: Pipeline, some: list[Query]) -> dict[str, Ranking]:
    """The rankings of some queries, read in fused order."""
    return {r.query.query_id: r for r in pipeline.rank(some, FUSED)}


def test_rankings_keep_the_order_of_the_queries(
    pipeline: Pipeline, rankings: Mapping[str, Ranking], some: list[Query]
) -> None:
    """In another order and a smaller batch each query has the very same ranking."""
    found = pipeline.rank(some[::-1], FUSED)
    assert [r.query for r in found] == some[::-1]
    for ranking in found:
        assert same(ranking, rankings[ranking.query.query_id])


def test_another_query_id_changes_nothing(
    pipeline: Pipeline, rankings: Mapping[str, Ranking], some: list[Query]
) -> None:
    """A ranking depends on the words of the query alone."""
    (found,) = pipeline.rank([replace(some[0], query_id="other", metadata={"a": 1})], FUSED)
    assert same(found, rankings[some[0].query_id])
    assert found.query.query_id == "other"


def test_the_cross_encoder_reads_the_best_fused(
    rankings: Mapping[str, Ranking], config: Config
) -> None:
    """The first `rerank_depth` passages are read; the others carry the lowest logit read."""
    depth = config.rerank_depth
    for ranking in rankings.values():
        assert len(ranking) == config.candidates
        assert ranking.read.tolist() == [True] * depth + [False] * (len(ranking) - depth)
        assert (np.diff(ranking.candidates.fused) <= 0).all()
        assert (ranking.logits[depth:] == ranking.logits[:depth].min()).all()
        assert not ranking.truncated[depth:].any()


def test_before_reading_every_logit_is_0(pipeline: Pipeline, some: list[Query]) -> None:
    """Candidates come in fused order, with what evidence there is without the cross-encoder."""
    for ranking in pipeline.find(some):
        assert not ranking.read.any()
        assert not ranking.logits.any()
        assert not ranking.relevance.any()
        assert (np.diff(ranking.candidates.fused) <= 0).all()
        assert np.ptp(ranking.evidence[:, list(PASSAGE_FEATURES).index("cosine")]) > 0


def test_with_a_prior_the_passages_it_puts_first_are_read(
    pipeline: Pipeline, rankings: Mapping[str, Ranking], some: list[Query]
) -> None:
    """The same candidates in the prior's order, the first of them read."""
    for ranking in pipeline.rank(some, Reading(by_evidence("cosine"))):
        fused = rankings[ranking.query.query_id]
        assert set(ranking.doc_ids) == set(fused.doc_ids)
        assert (np.diff(ranking.candidates.dense) <= 0).all()
        assert ranking.read[:2].all()
        pairs = [(ranking.query.text, p.full_text) for p in ranking.passages[:2]]
        assert ranking.logits[:2].tolist() == pipeline.reranker.score(pairs)[0].tolist()


def test_what_is_unlikely_is_not_read(pipeline: Pipeline, some: list[Query]) -> None:
    """With a floor, passages are read down to that share of the best relevance, two at least."""
    deep = Pipeline(pipeline.index, replace(pipeline.config, rerank_depth=6))
    deep.reranker = pipeline.reranker
    prior = by_evidence("cosine")
    whole = deep.rank(some, Reading(prior))
    for floor in (0.0, 0.97, 1.0):
        for ranking, full in zip(deep.rank(some, Reading(prior, floor)), whole, strict=True):
            likely = (ranking.relevance >= floor * ranking.relevance[0])[:6].sum()
            assert ranking.read.sum() == max(2, likely)
            assert same(ranking, limit_scored(full, floor))
    assert {int(r.read.sum()) for r in deep.rank(some, Reading(prior, 1.0))} == {2}
    assert {int(r.read.sum()) for r in deep.rank(some, Reading(prior, 0.97))} - {2, 6}
    again = limit_scored(limit_scored(whole[0], 1.0), 0.0)
    assert again.read.sum() == 2  # what was not read is not remembered either


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_no_more_is_read_than_there_is_or_than_is_allowed(
    pipeline: Pipeline, some: list[Query], depth: int
) -> None:
    """The least of two passages gives way to a depth of one, and to a single candidate."""
    shallow = Pipeline(pipeline.index, replace(pipeline.config, rerank_depth=depth, candidates=3))
    shallow.reranker = pipeline.reranker
    (found,) = shallow.rank(some[:1], replace(FUSED, floor=1.0))
    assert found.read.sum() == min(depth, 2)
    single = Pipeline(pipeline.index, replace(pipeline.config, rerank_depth=depth, candidates=1))
    single.reranker = pipeline.reranker
    (found,) = single.rank(some[:1], FUSED)
    assert found.read.tolist() == [True]


def test_logits_are_those_of_query_and_full_text(
    pipeline: Pipeline, rankings: Mapping[str, Ranking], some: list[Query]
) -> None:
    """The cross-encoder is given the question and the passage with its title."""
    for query in some[:2]:
        ranking = rankings[query.query_id]
        pairs = [(query.text, p.full_text) for p in ranking.passages[:2]]
        assert pairs[0][1].startswith(ranking.passages[0].title)
        logits, cut = pipeline.reranker.score(pairs)
        assert ranking.logits[:2].tolist() == logits.tolist()
        assert ranking.truncated[:2].tolist() == cut.tolist()


def test_no_query_gives_no_ranking(pipeline: Pipeline) -> None:
    """Nothing in, nothing out."""
    assert pipeline.rank([], FUSED) == pipeline.find([]) == pipeline.read([]) == []


# --- kept scores ------------------------------------------------------------------------------


def test_scores_of_other_pairs_are_not_taken(
    index: Index,
    pipeline: Pipeline,
    config: Config,
    some: list[Query],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    other_reranker: Callable[..., Path],
) -> None:
    """Another cut, passage, question or cross-encoder is scored anew; the same again is not."""
    counted: list[int] = []
    original = CrossEncoder.read

    def counting(self: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> Any:
        counted.append(len(pairs))
        return original(self, pairs)

    monkeypatch.setattr(CrossEncoder, "read", counting)
    tiny = replace(config, rerank_depth=1, max_length=32, reranker=str(other_reranker()))

    def scored(query: Query, options: Config) -> int:
        """How many pairs had to be scored."""
        counted.clear()
        made = Pipeline(index, options, cache=score_cache(tmp_path))
        made.encoder = pipeline.encoder  # open already
        made.rank([query], FUSED)
        return sum(counted)

    query = some[0]
    assert scored(query, tiny) == 1
    assert scored(replace(query, query_id="same words"), tiny) == 0
    assert scored(replace(query, text=query.text + " now"), tiny) == 1
    assert scored(query, replace(tiny, max_length=40)) == 1
    assert scored(query, replace(tiny, rerank_depth=3)) == 2
    assert scored(query, replace(tiny, reranker=str(other_reranker()))) == 1
    assert scored(query, tiny) == 0


def test_a_chunk_is_smaller_than_the_session_set(small: LabelledSet) -> None:
    """The interrupted run of the session has a chunk before and a chunk after the stop."""
    assert CHUNK < len(small.queries) < 2 * CHUNK


# --- the order --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(by_hand: Make) -> Ranking:
    """Four passages; the third was not read, though its filled-in logit is high."""
    return by_hand(
        texts=["a", "b", "c", "d"],
        logits=[1.0, 2.0, 5.0, 1.0],
        read=[True, True, False, True],
        fused=[0.4, 0.3, 0.2, 0.1],
        evidence={"cosine": [0.0, 1.0, 2.0, 2.0]},
    )


@pytest.mark.parametrize(
    ("rank_by", "expected"),
    [
        ("relevance", ["d2", "d3", "d1", "d0"]),  # by cosine here; the tie keeps the fused order
        ("logit", ["d1", "d0", "d3", "d2"]),  # what was not read comes last
        ("fused", ["d0", "d1", "d2", "d3"]),
    ],
)
def test_the_order_by_hand(table: Ranking, rank_by: str, expected: list[str]) -> None:
    """Each order is the one that sorting by hand gives, ties in fused order."""
    found = order(table, by_evidence("cosine"), rank_by=rank_by)
    assert list(found.doc_ids) == expected


@pytest.mark.parametrize("rank_by", ["relevance", "logit", "fused"])
def test_the_order_it_came_in_does_not_matter(table: Ranking, rank_by: str) -> None:
    """A ranking shuffled beforehand is put into the same order."""
    learned = by_evidence("cosine")
    expected = order(table, learned, rank_by=rank_by)
    shuffled = table.reorder(np.array([2, 0, 3, 1]))
    assert same(order(shuffled, learned, rank_by=rank_by), expected)


def test_every_array_moves_with_its_passage(table: Ranking) -> None:
    """After ordering, each passage has the numbers that it had before."""
    found = order(table, by_evidence("cosine"))
    for k, doc_id in enumerate(found.doc_ids):
        i = table.doc_ids.index(doc_id)
        assert found.logits[k] == table.logits[i]
        assert found.read[k] == table.read[i]
        assert found.evidence[k].tolist() == table.evidence[i].tolist()
        assert found.candidates.fused[k] == table.candidates.fused[i]
        assert found.candidates.rows[k] == table.candidates.rows[i]
    expected = 1 / (1 + np.exp(-np.array([2.0, 2.0, 1.0, 0.0])))
    np.testing.assert_allclose(found.relevance, expected, atol=1e-15)


def test_what_was_given_is_left_as_it_came(table: Ranking) -> None:
    """Ordering makes a new ranking."""
    order(table, by_evidence("cosine"))
    assert table.doc_ids == ("d0", "d1", "d2", "d3")
    assert table.relevance.tolist() == [0.5] * 4


def test_an_empty_ranking_has_an_order(by_hand: Make) -> None:
    """A ranking without passages is given back."""
    assert len(order(by_hand(), by_evidence("cosine"))) == 0

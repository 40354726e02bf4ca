"""Query to ranking: what is scored, what is kept, and the order that people see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import make_scored

from calibration.maps import LogisticMap
from rerank.assessment.passage_features import CROSS_ENCODER, FIRST_STAGE, PASSAGE_FEATURES
from rerank.assessment.pipeline import CHUNK, Models, Pipeline, ReadPolicy
from rerank.assessment.ranking import limit_scored, rank, read, unscored_features
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.inference.cross_encoder import CrossEncoder
from rerank.inference.score_cache import ScoreCache
from rerank.protocols import Request
from rerank.retrieval.index import Index
from rerank.storage.folder import Workspace
from rerank.types import FirstStage, Query, Scored


def same(one: Scored, other: Scored) -> bool:
    """Whether scored candidates are equal to the bit, query ids aside."""
    first, second = one.candidates, other.candidates
    arrays = [
        (getattr(first.first_stage, f.name), getattr(second.first_stage, f.name))
        for f in fields(FirstStage)
    ]
    arrays += [
        (getattr(one, n), getattr(other, n)) for n in ("prior_scores", "logits", "truncated")
    ]
    arrays.append((first.features, second.features))
    return first.passages == second.passages and all(np.array_equal(a, b) for a, b in arrays)


def by_feature(name: str, weight: float = 1.0) -> LogisticMap:
    """A score map that looks at one column alone."""
    coef = [weight if column == name else 0.0 for column in PASSAGE_FEATURES]
    return LogisticMap(tuple(coef), 0.0, (0.0,) * len(coef), (1.0,) * len(coef))


FUSED = ReadPolicy(by_feature("fused_log_rank", -1.0))


def _with(pipeline: Pipeline, **options: int) -> Pipeline:
    """The same pipeline with other options."""
    config = replace(pipeline.config, **options)  # type: ignore[arg-type]
    return Pipeline(OwnIndex(pipeline.index, config), pipeline.models)


@pytest.fixture(scope="module")
def some(small: LabelledSet) -> list[Query]:
    return list(small.queries.values())[:4]


@pytest.fixture(scope="module")
def scored(pipeline: Pipeline, some: list[Query]) -> dict[str, Scored]:
    """The candidates of some queries, scored in fused order."""
    return {s.query.query_id: s for s in pipeline.run(some, FUSED)}


def test_candidates_keep_the_order_of_the_queries(
    pipeline: Pipeline, scored: Mapping[str, Scored], some: list[Query]
) -> None:
    """In another order and a smaller batch each query has the very same candidates."""
    found = pipeline.run(some[::-1], FUSED)
    assert [s.query for s in found] == some[::-1]
    for one in found:
        assert same(one, scored[one.query.query_id])


def test_another_query_id_changes_nothing(
    pipeline: Pipeline, scored: Mapping[str, Scored], some: list[Query]
) -> None:
    """What is found depends on the words of the query alone."""
    (found,) = pipeline.run([replace(some[0], query_id="other", metadata={"a": 1})], FUSED)
    assert same(found, scored[some[0].query_id])
    assert found.query.query_id == "other"


def test_the_cross_encoder_scores_the_best_fused(
    scored: Mapping[str, Scored], config: Config
) -> None:
    """The first `rerank_depth` passages are scored; in a ranking the others carry the lowest
    logit.
    """
    depth = config.rerank_depth
    for one in scored.values():
        assert len(one) == config.candidates
        assert one.logits.shape == one.truncated.shape == (depth,)
        assert (np.diff(one.candidates.first_stage.fused) <= 0).all()
        ranking = rank(one, FUSED.prior)
        assert ranking.scored.tolist() == [True] * depth + [False] * (len(one) - depth)
        assert (ranking.logits[depth:] == ranking.logits[:depth].min()).all()
        assert not ranking.truncated[depth:].any()


def test_candidates_come_in_fused_order(pipeline: Pipeline, some: list[Query]) -> None:
    """With what the first stage says of them, and nothing of the cross-encoder."""
    for found in pipeline.retrieve(some):
        assert (np.diff(found.first_stage.fused) <= 0).all()
        assert np.ptp(found.features[:, list(FIRST_STAGE).index("cosine")]) > 0
        before = unscored_features(found)
        assert before.shape == (len(found), len(PASSAGE_FEATURES))
        assert (np.ptp(before[:, : len(CROSS_ENCODER)], axis=0) == 0).all()


def test_with_a_prior_the_passages_it_puts_first_are_scored(
    pipeline: Pipeline, scored: Mapping[str, Scored], some: list[Query]
) -> None:
    """The same candidates in the prior's order, the first of them scored."""
    for one in pipeline.run(some, ReadPolicy(by_feature("cosine"))):
        fused, passages = scored[one.query.query_id], one.candidates.passages
        assert {p.doc_id for p in passages} == {p.doc_id for p in fused.candidates.passages}
        assert (np.diff(one.candidates.first_stage.dense) <= 0).all()
        pairs = [(one.query.text, p.full_text) for p in passages[:2]]
        assert one.logits[:2].tolist() == pipeline.reranker.score(pairs)[0].tolist()


def test_what_is_unlikely_is_not_scored(pipeline: Pipeline, some: list[Query]) -> None:
    """With a cutoff, passages are read down to that share of the best prior score, two at least."""
    deep = _with(pipeline, rerank_depth=6)
    prior = by_feature("cosine")
    whole = deep.run(some, ReadPolicy(prior))
    for cutoff in (0.0, 0.97, 1.0):
        for one, full in zip(deep.run(some, ReadPolicy(prior, cutoff)), whole, strict=True):
            likely = (one.prior_scores >= cutoff * one.prior_scores[0])[:6].sum()
            assert len(one.logits) == max(2, likely)
            assert same(one, limit_scored(full, cutoff))
    assert {len(s.logits) for s in deep.run(some, ReadPolicy(prior, 1.0))} == {2}
    assert {len(s.logits) for s in deep.run(some, ReadPolicy(prior, 0.97))} - {2, 6}
    again = limit_scored(limit_scored(whole[0], 1.0), 0.0)
    assert len(again.logits) == 2  # what was not scored is not remembered either


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_no_more_is_scored_than_there_is_or_than_is_allowed(
    pipeline: Pipeline, some: list[Query], depth: int
) -> None:
    """The least of two passages gives way to a depth of one, and to a single candidate."""
    shallow = _with(pipeline, rerank_depth=depth, candidates=3)
    (found,) = shallow.run(some[:1], replace(FUSED, cutoff=1.0))
    assert len(found.logits) == min(depth, 2)
    single = _with(pipeline, rerank_depth=depth, candidates=1)
    (found,) = single.run(some[:1], FUSED)
    assert len(found.logits) == 1


def test_logits_are_those_of_query_and_full_text(
    pipeline: Pipeline, scored: Mapping[str, Scored], some: list[Query]
) -> None:
    """The cross-encoder is given the query and the passage with its title."""
    for query in some[:2]:
        one = scored[query.query_id]
        pairs = [(query.text, p.full_text) for p in one.candidates.passages[:2]]
        assert pairs[0][1].startswith(one.candidates.passages[0].title)
        logits, cut = pipeline.reranker.score(pairs)
        assert one.logits[:2].tolist() == logits.tolist()
        assert one.truncated[:2].tolist() == cut.tolist()


def test_no_query_gives_no_candidates(pipeline: Pipeline) -> None:
    """Nothing in, nothing out."""
    assert pipeline.run([], FUSED) == pipeline.retrieve([]) == pipeline.score([], []) == []


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
    original = CrossEncoder.score

    def counting(self: CrossEncoder, requests: Sequence[Request]) -> Any:
        counted.append(sum(len(texts) for _, texts in requests))
        return original(self, requests)

    monkeypatch.setattr(CrossEncoder, "score", counting)
    tiny = replace(config, rerank_depth=1, max_length=32, reranker=str(other_reranker()))

    def scored_anew(query: Query, options: Config) -> int:
        """How many pairs had to be scored."""
        counted.clear()
        models = Models.open(options, cache=ScoreCache(Workspace(tmp_path).scores))
        models = replace(models, encoder=pipeline.encoder)  # open already
        Pipeline(OwnIndex(index, options), models).run([query], FUSED)
        return sum(counted)

    query = some[0]
    assert scored_anew(query, tiny) == 1
    assert scored_anew(replace(query, query_id="same words"), tiny) == 0
    assert scored_anew(replace(query, text=query.text + " now"), tiny) == 1
    assert scored_anew(query, replace(tiny, max_length=40)) == 1
    assert scored_anew(query, replace(tiny, rerank_depth=3)) == 2
    assert scored_anew(query, replace(tiny, reranker=str(other_reranker()))) == 1
    assert scored_anew(query, tiny) == 0


def test_a_chunk_is_smaller_than_the_session_set(small: LabelledSet) -> None:
    """The interrupted run of the session has a chunk before and a chunk after the stop."""
    assert CHUNK < len(small.queries) < 2 * CHUNK


# --- the order --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> Scored:
    """Four candidates of which three are scored; the last would be filled in with the lowest."""
    return make_scored(
        texts=["a", "b", "c", "d"],
        logits=[1.0, 2.0, 1.0],
        fused=[0.4, 0.3, 0.1, 0.2],
        features={"cosine": [0.0, 1.0, 2.0, 2.0]},
    )


@pytest.mark.parametrize(
    ("rank_by", "expected"),
    [
        ("relevance", ["d3", "d2", "d1", "d0"]),  # by cosine here; the tie keeps the fused order
        ("logit", ["d1", "d0", "d2", "d3"]),  # what was not scored comes last
        ("fused", ["d0", "d1", "d3", "d2"]),
        ("auto", ["d3", "d2", "d1", "d0"]),  # without labels to choose by: relevance
    ],
)
def test_the_order_by_hand(table: Scored, rank_by: str, expected: list[str]) -> None:
    """Each order is the one that sorting by hand gives, ties in fused order."""
    found = rank(table, by_feature("cosine"), rank_by=rank_by)
    assert list(found.doc_ids) == expected


@pytest.mark.parametrize("rank_by", ["relevance", "logit", "fused"])
def test_the_order_it_came_in_does_not_matter(table: Scored, rank_by: str) -> None:
    """Candidates that were scored in another order are put into the same order."""
    score = by_feature("cosine")
    expected = rank(table, score, rank_by=rank_by)
    first = np.array([2, 0, 1])  # of those scored
    turned = Scored(
        table.candidates.take(np.append(first, 3)),
        table.prior_scores,
        table.logits[first],
        table.truncated[first],
    )
    found = rank(turned, score, rank_by=rank_by)
    assert found.doc_ids == expected.doc_ids
    for name in ("logits", "scored", "truncated", "features", "score"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_every_array_moves_with_its_passage(table: Scored) -> None:
    """In a ranking each passage has the numbers that it had as a candidate."""
    found = rank(table, by_feature("cosine"))
    before, stage = read(table).features, table.candidates.first_stage
    for k, doc_id in enumerate(found.doc_ids):
        i = int(doc_id[1:])
        assert found.scored[k] == (i < 3)
        assert found.logits[k] == ([*table.logits, table.logits.min()])[i]
        assert found.features[k].tolist() == before[i].tolist()
        assert found.first_stage.fused[k] == stage.fused[i]
        assert found.first_stage.rows[k] == stage.rows[i]
    expected = 1 / (1 + np.exp(-np.array([2.0, 2.0, 1.0, 0.0])))
    np.testing.assert_allclose(found.score, expected, atol=1e-15)


def test_what_was_given_is_left_as_it_came(table: Scored) -> None:
    """Ranking makes new arrays."""
    rank(table, by_feature("cosine"))
    assert [p.doc_id for p in table.candidates.passages] == ["d0", "d1", "d2", "d3"]
    assert table.logits.tolist() == [1.0, 2.0, 1.0]
    assert table.candidates.first_stage.fused.tolist() == [0.4, 0.3, 0.1, 0.2]


def test_no_candidates_are_an_empty_ranking() -> None:
    """A ranking without passages."""
    assert len(rank(make_scored(), by_feature("cosine"))) == 0

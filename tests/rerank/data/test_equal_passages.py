"""A passage that is there twice competes with nobody, and counts once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coherence import check_family
from hand_made import make_ranking, make_scored
from known_lists import known_lists, unlabelled, write_lines
from session_run import Run

from calibration.maps import LogisticMap
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.assessment.pipeline import Models, Pipeline
from rerank.assessment.ranking import by_prior, rank
from rerank.assessment.ranking_features import ranking_features
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import Config
from rerank.data.duplicates import distinct, ranks_without_equal
from rerank.data.labelled_set import LabelledSet
from rerank.data.records import read_query
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.calibrate import calibrate
from rerank.jobs.pipelines import open_index
from rerank.storage.folder import Workspace
from rerank.types import Passage, Query


def test_distinct_by_hand() -> None:
    """Title and text count; passages without text are never equal; the ids do not matter."""
    texts = [("", "a"), ("t", "a"), ("", "a"), ("", ""), ("", ""), ("t", "a")]
    first, group = distinct([Passage(str(i), *text) for i, text in enumerate(texts)])
    assert first.tolist() == [0, 1, 3, 4]
    assert group.tolist() == [0, 1, 0, 2, 3, 1]
    first, group = distinct([])
    assert (first.tolist(), group.tolist(), first.dtype) == ([], [], np.int64)


def test_ranks_by_hand() -> None:
    """The second and third passage are equal, and so are the two that the stage did not find."""
    group = np.array([0, 1, 1, 2, 3, 3])
    first, ranks = np.array([0, 1, 3, 4]), np.array([1, 2, 4, 5, 51, 51])
    assert ranks_without_equal(ranks, first, group).tolist() == [1, 2, 2, 4, 50, 50]
    assert ranks_without_equal(ranks[:0], first[:0], group[:0]).tolist() == []


def test_the_features_of_a_ranking_are_those_without_its_copies() -> None:
    """Margins, means and counts alike."""
    numbers = {"bm25": [7.0, 5.0, 4.0], "dense": [0.8, 0.7, 0.2], "logits": [3.0, 1.0, -2.0]}
    numbers |= {"score": [0.8, 0.4, 0.1]}
    once = make_ranking(texts=["a b", "c d", "e"], titles=[""] * 3, **numbers)
    again = {name: [v[0], v[0], v[1], v[1], v[2]] for name, v in numbers.items()}
    places = {name: [1, 1, 2, 2, 3] for name in ("bm25_rank", "dense_rank")}
    twice = make_ranking(
        texts=["a b", "a b", "c d", "c d", "e"], titles=[""] * 5, **again, **places
    )
    assert ranking_features([twice]).tolist() == ranking_features([once]).tolist()


def test_copies_are_scored_last_and_have_the_score_of_their_equal() -> None:
    """Two of five are scored: the likeliest, and the likeliest of the others."""
    scored = make_scored(
        logits=(), texts=["a", "a", "b", "c", "b"], titles=[""] * 5, fused=[5, 4, 3, 2, 1]
    )
    candidates, _, different = by_prior(scored.candidates, np.array([0.5, 0.9, 0.8, 0.1, 0.8]))
    assert [p.doc_id for p in candidates.passages] == ["d1", "d2", "d3", "d4", "d0"]
    assert different == 3
    lead = [1.0 if name == "logit_lead" else 0.0 for name in PASSAGE_FEATURES]
    score = LogisticMap(tuple(lead), 0.0, (0.0,) * len(lead), (1.0,) * len(lead))
    cut = np.array([False, True])
    ranking = rank(
        replace(scored, candidates=candidates, logits=np.array([2.0, 3.0]), truncated=cut), score
    )
    by_id = dict(zip(ranking.doc_ids, ranking.logits.tolist(), strict=True))
    assert by_id == {"d0": 2.0, "d1": 2.0, "d2": 3.0, "d4": 3.0, "d3": 2.0}
    assert ranking.doc_ids == ("d2", "d4", "d0", "d1", "d3")
    assert ranking.scored.tolist() == [True, True, True, True, False]
    assert ranking.truncated.tolist() == [True, True, False, False, False]


def test_copies_in_a_list_change_nothing(run: Run, small: LabelledSet) -> None:
    """Each has the relevance of its equal; the confidence is that of the list without them."""
    cache = ScoreCache(Workspace(run.work).scores)
    model = CalibratedReranker.load(run.folder, cache=cache)
    for query in list(small.queries.values())[:8]:
        once = tuple(model.search(query.text).ranking.passages[:8])
        alone = model.rerank(query.text, once)
        assert alone.top is not None
        for original in (once[0], once[5], alone.ranking.passages[0]):
            copies = [Passage(f"copy {i}", original.title, original.text) for i in range(3)]
            found = model.rerank(query.text, (copies[0], *once, *copies[1:]))
            relevance = dict(zip(found.ranking.doc_ids, found.relevance.tolist(), strict=True))
            expected = dict(zip(alone.ranking.doc_ids, alone.relevance.tolist(), strict=True))
            for copy in copies:
                expected[copy.doc_id] = expected[original.doc_id]
            assert relevance == pytest.approx(expected, abs=1e-12)
            np.testing.assert_allclose(found.features, alone.features, atol=1e-12)
            assert found.sufficiency_at[9] <= alone.sufficiency_at[9] + 1e-12
            check_family(found.confidence, found.relevance, np.array(found.sufficiency_at))


@pytest.fixture(scope="module")
def of_lists(tmp_path_factory: pytest.TempPathFactory) -> CalibratedReranker:
    """A model of lists whose passages have texts."""
    place = tmp_path_factory.mktemp("lists")
    labelled = LabelledSet.read(write_lines(place / "lists.jsonl", with_texts(known_lists(60))))
    settings = Config(folds=2, calibrator="logistic")
    return CalibratedReranker.load(
        calibrate(labelled, place / "model", settings, work=place / "work").folder
    )


def with_texts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        for passage in row["passages"]:
            passage["text"] = f"passage {passage['_id']} is about question number {row['_id']}"
    return rows


@pytest.mark.parametrize("missing", [(), ("reranker",), ("bm25", "reranker")])
def test_copies_in_a_list_with_scores_change_nothing(
    of_lists: CalibratedReranker, missing: tuple[str, ...]
) -> None:
    """Not even where a stage has scored only one of them."""
    rows = with_texts([unlabelled(row) for row in known_lists(20, seed=3)])
    for row in rows:
        query = read_query(row)
        alone = of_lists.assess([query])[0]
        assert query.passages is not None
        assert query.scores is not None
        for place in (alone.ranking.first_stage.rows[0], 5):
            original = query.passages[place]
            copies = [replace(original, doc_id=f"copy {i}") for i in range(3)]
            scores = {
                stage: np.append(values, [np.nan if stage in missing else values[place]] * 3)
                for stage, values in query.scores.items()
            }
            longer = replace(query, passages=(*query.passages, *copies), scores=scores)
            found = of_lists.assess([longer])[0]
            relevance = dict(zip(found.ranking.doc_ids, found.relevance.tolist(), strict=True))
            expected = dict(zip(alone.ranking.doc_ids, alone.relevance.tolist(), strict=True))
            expected |= {copy.doc_id: expected[original.doc_id] for copy in copies}
            assert relevance == pytest.approx(expected, abs=1e-12)
            np.testing.assert_allclose(found.features, alone.features, atol=1e-12)


def test_logits_that_came_with_equal_passages_are_the_highest(run: Run, small: LabelledSet) -> None:
    """Whatever the order of the passages."""
    model = CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))
    texts = ["The middle value.", "The middle value.", "The sum over the count."]
    passages = [Passage(str(i), "", text) for i, text in enumerate(texts)]
    query = Query("median", passages=tuple(passages), logits=np.array([-6.0, 5.0, -4.0]))
    turned = replace(query, passages=tuple(passages[::-1]), logits=query.logits[::-1])
    found, again = model.assess([query, turned])
    assert found.confidence == again.confidence
    assert {p.doc_id: p.logit for p in found.passages} == {"0": 5.0, "1": 5.0, "2": -4.0}


def test_copies_in_the_corpus_share_rank_and_features(
    run: Run, small: LabelledSet, config: Config
) -> None:
    """Every fifth passage is there twice."""
    twice = {f"copy of {i}": replace(small.corpus[i], doc_id=f"copy of {i}") for i in small.corpus}
    corpus = {**small.corpus, **dict(list(twice.items())[::5])}
    index = open_index(replace(small, corpus=corpus), config, Workspace(run.work))
    models = Models.open(config, cache=ScoreCache(Workspace(run.work).scores))
    pipeline = Pipeline(OwnIndex(index, config), models)
    copies = 0
    for candidates in pipeline.retrieve(list(small.queries.values())[:20]):
        first, group = distinct(candidates.passages)
        stage = candidates.first_stage
        copies += len(group) - len(first)
        for values in (candidates.features, stage.bm25_rank, stage.dense_rank):
            assert np.array_equal(values, values[first][group])
    assert copies > 10

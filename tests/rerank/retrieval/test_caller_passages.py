"""Passages that the caller brings: the mode `rerank`, its candidates and its confidence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hand_made import make_scored
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.sources.source import rank_passages
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import Labelled
from rerank.errors import InputError
from rerank.fitting.scored_plan import (
    LENGTHS,
    ScoredPlan,
    as_from_caller,
    list_length,
    score_rerank,
)
from rerank.inference.cross_encoder import CrossEncoder, open_reranker
from rerank.inference.score_cache import ScoreCache
from rerank.retrieval.bm25 import BM25, score_texts
from rerank.storage.folder import Workspace
from rerank.types import Passage, Query, Scored

Run = Any  # the session's run, see conftest
QUESTION = "median along an axis while ignoring NaNs"


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


@pytest.fixture(scope="module")
def passages(small: LabelledSet) -> tuple[Passage, ...]:
    return tuple(small.corpus.values())[:12]


@settings(deadline=None)
@over(
    st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=9), min_size=3, max_size=8),
    st.lists(st.sampled_from("abcdef"), max_size=4),
)
def test_texts_score_as_in_an_index_of_their_own(texts: list[list[str]], query: list[str]) -> None:
    """With their own idf, the scores are those of rank_bm25."""
    own = BM25.build(texts)
    counts = {word: np.array([text.count(word) for text in texts]) for word in query}
    found = score_texts(query, counts, np.array([len(text) for text in texts]), own.idf)
    np.testing.assert_allclose(found, BM25Okapi(texts).get_scores(query), atol=1e-9)


@dataclass
class Asked:
    """A lexicon that notes of which words it is asked."""

    language: str = "none"
    words: list[str] = field(default_factory=list)

    def idf(self, word: str) -> float:
        """One of any word."""
        self.words.append(word)
        return 1.0


def test_words_of_a_long_query_that_no_passage_holds_cost_nothing() -> None:
    """Of thousands of them; those that are held count as often as they are asked."""
    lexicon, asked = Asked(), " ".join(f"w{i}" for i in range(3000))
    passages = Passage("a", "w1", "w1 w2 z"), Passage("b", "", "z z z z")
    found = rank_passages(f"w2 {asked}", passages, np.zeros(2), lexicon, rrf_k=60)
    assert sorted(lexicon.words) == ["w1", "w2"]
    alone = rank_passages("w2 w2 w1", passages, np.zeros(2), lexicon, rrf_k=60)
    assert found.bm25.tolist() == pytest.approx(alone.bm25.tolist())
    assert found.bm25[1] == 0 < found.bm25[0]


def test_the_callers_passages_are_ranked_and_nothing_else(
    model: CalibratedReranker, passages: tuple[Passage, ...]
) -> None:
    """Every passage comes back once, best first, with its place in what was given."""
    found = model.rerank(QUESTION, passages)
    assert sorted(found.ranking.doc_ids) == sorted(p.doc_id for p in passages)
    assert tuple(passages[row] for row in found.ranking.first_stage.rows) == found.ranking.passages
    assert list(found.relevance) == sorted(found.relevance, reverse=True)
    assert 0 < found.confidence <= found.sufficiency <= 1


def test_the_order_in_which_they_come_does_not_matter(
    model: CalibratedReranker, passages: tuple[Passage, ...]
) -> None:
    """A hosted API's caller may sort them as he likes."""
    forth, back = model.rerank(QUESTION, passages), model.rerank(QUESTION, passages[::-1])
    assert forth.ranking.doc_ids == back.ranking.doc_ids
    assert forth.confidence == pytest.approx(back.confidence, abs=1e-6)


def test_passages_of_no_index_are_taken(model: CalibratedReranker) -> None:
    """Another language, unknown words, repeated texts and ids: all get a place."""
    texts = ["何ですか", "xyzzyx", "Der Median einer Stichprobe.", "xyzzyx", "the median of axis 0"]
    found = model.rerank(QUESTION, [Passage("same", "", text) for text in texts])
    assert sorted(found.ranking.first_stage.rows) == [0, 1, 2, 3, 4]
    assert found.ranking.passages[0].text == "the median of axis 0"


def test_no_passage_is_no_answer(model: CalibratedReranker) -> None:
    """Nothing given: nothing to be sure of."""
    found = model.rerank(QUESTION, [])
    assert (found.confidence, found.sufficiency, len(found.ranking)) == (0.0, 0.0, 0)


def test_many_are_judged_as_one_by_one(
    model: CalibratedReranker, passages: tuple[Passage, ...]
) -> None:
    """An assessment does not depend on its neighbours, one without passages included."""
    asked = [("what is the mean", passages[:7]), (QUESTION, ()), (QUESTION, passages)]
    many = model.assess([Query(q, passages=p) for q, p in asked])
    assert [a.to_dict() for a in many] == [model.rerank(q, p).to_dict() for q, p in asked]


def test_logits_that_come_along_are_not_computed_again(
    model: CalibratedReranker, passages: tuple[Passage, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own logits, handed in, lead to what scoring leads to."""
    expected = model.rerank(QUESTION, passages)
    logits, _ = model.pipeline.reranker.score([(QUESTION, p.full_text) for p in passages])
    monkeypatch.setattr(CrossEncoder, "score", None)
    monkeypatch.setattr(model.pipeline.reranker, "cache", None)
    (found,) = model.assess([Query(QUESTION, passages=passages, logits=logits)])
    assert found.to_dict() == expected.to_dict()
    (other,) = model.assess([Query(QUESTION, passages=passages, logits=logits - 9)])
    assert other.confidence != expected.confidence


@pytest.mark.parametrize("logits", [[1.0], [1.0, float("nan")], [[1.0], [2.0]]])
def test_logits_must_be_one_a_passage(passages: tuple[Passage, ...], logits: list[Any]) -> None:
    """The message says how many were expected."""
    with pytest.raises(InputError, match="one finite logit per passage, 2 in all"):
        Query(QUESTION, passages=passages[:2], logits=np.array(logits))


def test_logits_come_only_with_passages() -> None:
    """An empty list without passages would search, and find passages without logits."""
    nothing: Any = []
    with pytest.raises(InputError, match="logits only of passages that come with them"):
        Query(QUESTION, logits=nothing)


def test_the_tokenizer_is_loaded_without_the_network(
    model: CalibratedReranker, passages: tuple[Passage, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits that come along need only the lengths of the pairs."""
    fresh = open_reranker(model.pipeline.reranker.model, max_length=8)
    monkeypatch.setattr(CrossEncoder, "_open", None)
    assert fresh.truncates([(QUESTION, passages[0].full_text), ("a", "b")]).tolist() == [
        True,
        False,
    ]


def test_passages_may_be_a_list(passages: tuple[Passage, ...]) -> None:
    """A query keeps a tuple, so that it stays as it was made."""
    brought: Any = list(passages)
    query = Query(QUESTION, passages=brought)
    brought.clear()
    assert query.passages == passages


def test_logits_may_be_a_plain_list() -> None:
    """As scores may; what is no number is refused in words."""
    alone = (Passage("a", "", "text"),)
    plain: Any = [1.5]
    query = Query(QUESTION, passages=alone, logits=plain)
    assert query.logits is not None
    assert query.logits.tolist() == plain
    words: Any = ["high"]
    with pytest.raises(InputError, match="one finite logit per passage, 1 in all"):
        Query(QUESTION, passages=alone, logits=words)


def test_an_empty_question_is_refused(
    model: CalibratedReranker, passages: tuple[Passage, ...]
) -> None:
    """As in a search."""
    with pytest.raises(InputError, match="the query is empty"):
        model.rerank(" ", passages)


def test_the_index_and_the_caller_bring_the_same_passage_alike(
    pipeline: Pipeline, run: Run
) -> None:
    """What a stored vector says of a passage, encoding its text again says too."""
    (found,) = pipeline.retrieve(run.plan.report.items[:1])
    stored = pipeline.source.as_from_caller(found, 5)
    (encoded,) = pipeline.retrieve([replace(found.query, passages=found.passages[:5])])
    assert stored.passages == encoded.passages
    np.testing.assert_allclose(stored.features, encoded.features, atol=1e-5)


@pytest.fixture(scope="module")
def from_callers(pipeline: Pipeline, searched: ScoredPlan) -> ScoredPlan:
    return score_rerank(pipeline, searched)


def test_the_maps_are_fitted_on_lists_of_many_lengths(from_callers: ScoredPlan, run: Run) -> None:
    """As their queries' hashes say, as far as there are candidates; the same queries as before."""
    lengths = [len(s) for s in from_callers.to_fit.items]
    assert set(lengths) == {5, 10}  # 10 candidates in the tests' configuration
    assert lengths == [min(list_length(s.query), 10) for s in from_callers.to_fit.items]
    assert [s.query for s in from_callers.to_fit.items] == list(run.plan.fit.items)
    assert all(len(s.logits) for s in (*from_callers.to_fit.items, *from_callers.to_report.items))


def test_the_length_of_a_list_is_the_querys_own() -> None:
    """The same in whatever order queries come; each length is dealt about as often."""
    dealt = [list_length(Query("same words", f"q{i}")) for i in range(400)]
    assert all(80 <= dealt.count(length) <= 120 for length in LENGTHS)
    assert list_length(Query("a")) == list_length(Query("b", "a"))


def test_each_mode_has_maps_of_its_own(model: CalibratedReranker, from_callers: ScoredPlan) -> None:
    """They are kept with the model, and were fitted on such lists."""
    assert model.maps["rerank"].confidence != model.maps["search"].confidence
    assert model.maps["rerank"].policy == from_callers.policy


def test_a_query_without_candidates_stays_in_its_place(
    pipeline: Pipeline, to_report: Labelled[Scored]
) -> None:
    """It has no passages to bring."""
    found = as_from_caller(
        pipeline, [scored.candidates for scored in (make_scored(), to_report.items[0])]
    )
    assert [len(c) for c in found] == [0, 10]

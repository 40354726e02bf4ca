"""How many passages are handed on, and why: by hand and for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from assessments import make_assessment
from hypothesis import given
from hypothesis import strategies as st

from rerank.advice.adaptive import depth, guaranteed, search, take
from rerank.advice.settings import AnswerConfig, Strategy
from rerank.assessment.model import CalibratedReranker
from rerank.commands.use import STOPPED
from rerank.config import Thresholds
from rerank.errors import InputError
from rerank.filters import Where
from rerank.rag.answer.bounded import usable_context
from rerank.types import Assessment, Query

TEXTS = [f"text {i}" for i in range(10)]
RISING = [0.3, 0.5, 0.65, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96]


def found(**numbers: Any) -> Assessment:
    return make_assessment(**{"texts": TEXTS, "sufficiency": RISING, **numbers})


@pytest.mark.parametrize(
    ("strategy", "k", "reason"),
    [
        (Strategy(), 4, "threshold"),
        (Strategy(min_k=6), 6, "threshold"),
        (Strategy(max_k=3), 3, "max_k"),
        (Strategy(sufficiency_threshold=0.3), 1, "threshold"),
        (Strategy(sufficiency_threshold=0.99), 8, "max_k"),
        (Strategy(similarity_floor=0.6), 0, "no_results"),
    ],
)
def test_it_stops_at_the_first_k_that_is_enough(strategy: Strategy, k: int, reason: str) -> None:
    """Else at the most passages allowed, or with none above the floor."""
    result = take(found(), strategy)
    assert (result.k, result.stop_reason) == (k, reason)
    assert [p.doc_id for p in result.passages] == [f"d{i}" for i in range(k)]
    assert result.sufficiency == pytest.approx(RISING[k - 1] if k else 0.0)
    assert result.to_dict()["k"] == k


def test_the_threshold_is_the_model_s_unless_it_is_given() -> None:
    """As the verdict is."""
    strict = found(thresholds=Thresholds(sufficient=0.9, partial=0.8))
    assert (take(strict).k, take(strict).verdict) == (7, "SUFFICIENT")
    few = take(strict, Strategy(max_k=5))
    assert (few.sufficiency, few.verdict, few.to_dict()["verdict"]) == (0.8, "PARTIAL", "PARTIAL")
    assert take(strict, Strategy(sufficiency_threshold=0.3)).k == 1


def test_equal_passages_are_taken_once() -> None:
    """With the sufficiency of the place at which each different one stands."""
    texts = ["a", "a", "b", "a", "c"]
    flat = [0.3, 0.3, 0.5, 0.5, 0.75]
    result = take(make_assessment(texts=texts, titles=[""] * 5, sufficiency=flat))
    assert [p.doc_id for p in result.passages] == ["d0", "d2", "d4"]
    assert (result.k, result.sufficiency, result.stop_reason) == (3, 0.75, "threshold")
    assert [depth(result.assessment, k) for k in (1, 2, 3, 4)] == [1, 3, 5, 4]
    _, told = usable_context(result.assessment, AnswerConfig(min_score=0.0))
    assert told.sufficiency == 0.75  # of the three different ones, not of the first three


def test_no_passage_is_no_result() -> None:
    """An empty ranking stops at once."""
    result = take(make_assessment(confidence=0.0))
    assert (result.k, result.stop_reason, result.sufficiency) == (0, "no_passages", 0.0)
    assert STOPPED[result.stop_reason] == "no passage was found"


def test_a_short_ranking_is_handed_on_whole() -> None:
    """Where there are fewer passages than allowed, the last one ends it."""
    assert take(found(texts=TEXTS[:2])).k == 2
    assert take(found(texts=TEXTS[:2])).stop_reason == "no_more"
    assert take(found(texts=TEXTS[:2]), Strategy(max_k=2)).stop_reason == "max_k"


@pytest.mark.parametrize("wrong", [5, [], "language"])
def test_metadata_that_is_no_mapping_is_refused(wrong: Any) -> None:
    """Before the model is asked, whether or not it reads metadata."""
    with pytest.raises(InputError, match=r"should be a mapping of names to values, .* got "):
        search(None, "x", metadata=wrong)  # type: ignore[arg-type]


def test_one_similar_passage_is_enough() -> None:
    """The confidence counts the similarity; the floor is for questions of another subject."""
    strange = found(dense=[0.1] * 10)
    assert (take(strange).k, take(strange).stop_reason) == (0, "no_results")
    assert take(strange).sufficiency == 0
    assert take(strange, Strategy(similarity_floor=-1)).k == 4
    known = found(dense=[-0.3, 0.1, *[0.5] * 8])
    assert [p.doc_id for p in take(known).passages] == ["d0", "d1", "d2", "d3"]
    assert take(known).sufficiency == RISING[3]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=10).map(sorted),
    st.floats(0.001, 1),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(0, 10),
)
def test_a_higher_threshold_never_hands_on_less(
    sufficiency: list[float], threshold: float, a: int, b: int, n: int
) -> None:
    """Whatever comes: k lies within its bounds, and grows with the threshold."""
    assessment = make_assessment(texts=TEXTS[:n], sufficiency=sufficiency)
    low, high = min(a, b), max(a, b)
    here, above = (
        take(assessment, Strategy(low, high, min(1.0, t), least_gain=0))
        for t in (threshold, threshold + 0.1)
    )
    assert min(low, n) <= here.k <= above.k <= high
    assert 0 <= here.sufficiency <= above.sufficiency <= 1
    assert (here.stop_reason == "no_passages") == (n == 0)


def test_passages_that_add_nothing_are_left_out() -> None:
    """Where the threshold is not reached, it ends at the last passage that is worth its place."""
    hopeless = found(sufficiency=[0.1, 0.15, 0.2, 0.205, 0.21])
    assert take(hopeless).k == 3
    assert take(hopeless).stop_reason == "least_gain"
    assert take(hopeless).sufficiency == pytest.approx(0.2)
    assert take(hopeless, Strategy(min_k=4)).k == 4
    whole = take(hopeless, Strategy(least_gain=0))
    assert (whole.k, whole.stop_reason) == (8, "max_k")


def test_what_the_labels_guarantee_is_handed_on_whole(model: CalibratedReranker) -> None:
    """Up to the sufficiency that is enough, however dissimilar; without a guarantee, a sentence."""
    maps = replace(model.maps["search"], stopping_threshold=0.7)
    query = Query("a question")
    result = take(found(dense=[0.0] * 10), guaranteed(maps, query))
    assert (result.k, result.stop_reason) == (4, "threshold")
    all_ten = guaranteed(replace(maps, stopping_threshold=1.0), query)
    assert take(found(dense=[0.0] * 10), all_ten).k == 10
    with pytest.raises(InputError, match="no guaranteed strategy"):
        guaranteed(replace(maps, stopping_threshold=None), query)
    with pytest.raises(InputError, match="filter on the same keys"):
        guaranteed(maps, replace(query, where=Where.read({"year": 2020})))


def test_search_asks_the_model_once() -> None:
    """By default with the default strategy."""

    class Model:
        asked = 0

        def assess(self, queries: Any) -> list[Assessment]:
            self.asked += 1
            return [found()]

    model = Model()
    assert search(model, "what is one").k == 4
    assert model.asked == 1
    assert search(model, "what is one", Strategy(max_k=2)).k == 2

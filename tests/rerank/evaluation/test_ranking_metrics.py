"""Measures of an order: scikit-learn's nDCG, and tables by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel
from sklearn.metrics import ndcg_score

from calibration.metrics.intervals import student_interval
from rerank.evaluation.measure import ndcg, order_quality, reciprocal_rank

GRADES = st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.5]), min_size=10, max_size=20)


@settings(max_examples=150, deadline=None)
@given(gains=GRADES, missed=st.lists(st.sampled_from([1.0, 3.0]), max_size=4))
def test_ndcg_is_scikit_learns(gains: list[float], missed: list[float]) -> None:
    """On any grades, passages that were not retrieved included, as sklearn.metrics.ndcg_score."""
    truth = gains + missed
    ideal = [g for g in truth if g > 0]
    if not ideal:
        assert ndcg(gains, ideal) == 0.0
        return
    expected = ndcg_score([truth], [range(len(truth), 0, -1)], k=10)
    assert ndcg(gains, ideal) == pytest.approx(expected, abs=1e-12)


def test_ndcg_by_hand() -> None:
    """Of two right passages one at rank 2: (1 / log2 3) / (1 + 1 / log2 3)."""
    expected = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    assert ndcg([0.0, 1.0, 0.0], [1.0, 1.0]) == pytest.approx(expected, abs=1e-15)
    assert ndcg([], [1.0]) == 0.0


@pytest.mark.parametrize(
    ("gains", "expected"),
    [([1, 0], 1.0), ([0, 0, 2], 1 / 3), ([0] * 10 + [1], 0.0), ([], 0.0), ([0, 0], 0.0)],
)
def test_reciprocal_rank_by_hand(gains: list[float], expected: float) -> None:
    """One over the rank of the first right passage among ten, else 0."""
    assert reciprocal_rank(gains) == expected


def test_quality_of_three_queries_by_hand() -> None:
    """The unanswerable query counts in hit@1 and not in nDCG and reciprocal rank."""
    found = order_quality([["a", "b"], ["b", "a"], ["a", "b"]], [{"a": 1.0}, {"a": 2.0}, {}])
    assert found.hit1.tolist() == [1.0, 0.0, 0.0]
    assert found.mrr10.tolist() == [1.0, 0.5]
    assert found.ndcg10.tolist() == pytest.approx([1.0, 1 / math.log2(3)])


def test_runs_and_grades_are_paired() -> None:
    """A run without its grades is a mistake of the caller."""
    with pytest.raises(ValueError, match="zip"):
        order_quality([["a"]], [])


def test_the_interval_is_that_of_scipys_t_test() -> None:
    """Mean and 95% interval of the differences, each in a group of its own."""
    rng = np.random.default_rng(0)
    better, worse = rng.random(200), rng.random(200)
    mean, low, high = student_interval(better - worse, list(map(str, range(200))))
    oracle = ttest_rel(better, worse).confidence_interval(0.95)
    assert mean == pytest.approx((better - worse).mean(), abs=1e-12)
    assert (low, high) == pytest.approx((oracle.low, oracle.high))


def test_an_order_does_not_beat_itself() -> None:
    """Equal measures differ by nothing, surely."""
    assert student_interval(np.zeros(12), list("abcdefghijkl")) == (0.0, 0.0, 0.0)


def test_few_groups_have_no_interval() -> None:
    """Of nine groups a difference is told and its interval is not; of no query nothing is."""
    mean, low, high = student_interval(np.linspace(0.1, 0.9, 9), list("abcdefghi"))
    assert mean == pytest.approx(0.5)
    assert np.isnan([low, high]).all()
    assert np.isnan(student_interval(np.array([]), [])).all()


def test_copies_in_a_group_add_no_certainty() -> None:
    """Each query four times, in one group, gives the interval of the queries alone."""
    better, groups = np.random.default_rng(1).normal(size=60), [str(k) for k in range(60)]
    alone = student_interval(better, groups)
    copied = student_interval(better.repeat(4), [g for g in groups for _ in "1234"])
    assert copied == pytest.approx(alone, abs=1e-12)


def test_a_few_large_groups_have_a_wide_interval() -> None:
    """A hundred rows about one thing, and twenty others: they vary as one or two groups do."""
    values, groups = np.random.default_rng(2).normal(size=120), [0] * 100 + list(range(1, 21))
    assert np.ptp(student_interval(values, groups)[1:]) > 10

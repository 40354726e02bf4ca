"""Measures of an order: scikit-learn's nDCG, and tables by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap
from sklearn.metrics import ndcg_score

from calibration.metrics.intervals import paired_bootstrap
from rerank.evaluation.ranking_metrics import ndcg, order_quality, reciprocal_rank

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


def test_the_interval_is_that_of_scipys_bootstrap() -> None:
    """Mean and 95% percentile interval agree with scipy.stats.bootstrap on the differences."""
    rng = np.random.default_rng(0)
    better, worse = rng.random(200), rng.random(200)
    mean, low, high = paired_bootstrap(better, worse, list(map(str, range(200))), draws=4000)
    oracle = bootstrap(
        (better - worse,), np.mean, method="percentile", n_resamples=4000, rng=rng
    ).confidence_interval
    assert mean == pytest.approx((better - worse).mean(), abs=1e-12)
    width = oracle.high - oracle.low
    assert low == pytest.approx(oracle.low, abs=0.08 * width)
    assert high == pytest.approx(oracle.high, abs=0.08 * width)


def test_an_order_does_not_beat_itself() -> None:
    """Equal measures differ by nothing, surely."""
    same = np.linspace(0.1, 0.9, 12)
    assert paired_bootstrap(same, same, list("abcdefghijkl")) == (0.0, 0.0, 0.0)


def test_few_groups_have_no_interval() -> None:
    """Of nine groups a difference is told and its interval is not; of no query nothing is."""
    nine = np.linspace(0.1, 0.9, 9)
    mean, low, high = paired_bootstrap(nine, 0 * nine, list("abcdefghi"))
    assert mean == pytest.approx(0.5)
    assert np.isnan([low, high]).all()
    assert np.isnan(paired_bootstrap(np.array([]), np.array([]), [])).all()


def test_copies_in_a_group_add_no_certainty() -> None:
    """Each query four times, in one group, gives the interval of the queries alone."""
    rng = np.random.default_rng(1)
    better, worse, groups = rng.random(60), rng.random(60), [str(k) for k in range(60)]
    alone = paired_bootstrap(better, worse, groups)
    copied = paired_bootstrap(
        better.repeat(4), worse.repeat(4), [g for g in groups for _ in "1234"]
    )
    assert copied == pytest.approx(alone, abs=1e-12)

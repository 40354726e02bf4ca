"""Reciprocal rank fusion: tables by hand, and the order of ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.retrieval.fusion import BLOCK, ranks, reciprocal_rank_fusion, top


def test_fused_scores_by_hand() -> None:
    """Cormack's formula, sum of 1 / (60 + rank), on two lists written out by hand."""
    rows, fused = reciprocal_rank_fusion([np.array([3, 0, 1]), np.array([0, 4])], k=60)
    assert rows.tolist() == [0, 1, 3, 4]
    assert fused == pytest.approx([1 / 62 + 1 / 61, 1 / 63, 1 / 61, 1 / 62], abs=1e-15)


def test_the_constant_weighs_the_ranks() -> None:
    """With k = 0 the score is the plain reciprocal rank."""
    assert reciprocal_rank_fusion([np.array([1, 0])], k=0)[1].tolist() == [0.5, 1.0]


def test_stages_that_found_nothing_fuse_to_nothing() -> None:
    """No stage, or an empty one, finds no row."""
    empty = np.array([], dtype=np.int64)
    for stages in ([empty, empty], []):
        rows, fused = reciprocal_rank_fusion(stages)
        assert rows.tolist() == fused.tolist() == []


def test_ranks_by_hand() -> None:
    """A found row has its place from 1, any other row the rank for missing ones."""
    found = np.array([2, 0])
    assert ranks(found, np.arange(4), missing=11).tolist() == [2, 11, 1, 11]
    assert ranks(found, np.array([2]), missing=11).tolist() == [1]


SCORES = st.lists(st.integers(-3, 3).map(float), max_size=30).map(np.array)


@given(scores=SCORES, count=st.integers(0, 35))
def test_top_is_a_stable_sort(scores: np.ndarray, count: int) -> None:
    """The best rows are those of a whole stable descending sort, ties to the earlier row."""
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    assert top(scores, count).tolist() == expected


@given(seed=st.integers(0, 99), count=st.integers(1, 9), kinds=st.sampled_from([3, 10**6]))
def test_top_of_many_is_a_stable_sort(seed: int, count: int, kinds: int) -> None:
    """So it is for more scores than a block holds, with many ties and with few."""
    drawn = np.random.default_rng(seed).integers(0, kinds, 10 * BLOCK + seed).astype(float)
    assert top(drawn, count).tolist() == np.argsort(-drawn, kind="stable")[:count].tolist()


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_the_order_of_stages_does_not_matter(first: list[int], second: list[int]) -> None:
    """Fusing BM25 with dense is fusing dense with BM25."""
    a, b = np.array(first), np.array(second)
    one, other = reciprocal_rank_fusion([a, b]), reciprocal_rank_fusion([b, a])
    np.testing.assert_allclose(one[1], other[1], rtol=1e-15)

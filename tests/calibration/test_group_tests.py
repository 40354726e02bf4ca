"""Certificates for new groups: against the binomial tail, and where groups differ strongly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from calibration.arrays import group_codes
from calibration.group_tests import group_sizes, group_tails, mean_lower_bound, mean_lower_bounds
from calibration.metrics.intervals import design_effect, effective_n, kish
from calibration.thresholds import certify, lower_bound

Effect = Callable[[np.random.Generator, int], np.ndarray]


@pytest.mark.parametrize(("hits", "n"), [(18, 20), (40, 50), (70, 100), (15, 15)])
def test_groups_of_one_row_have_the_binomial_tail(hits: int, n: int) -> None:
    """Gaffke's p-value of two values is that of Clopper and Pearson."""
    y = np.append(np.ones(hits), np.zeros(n - hits))
    tail, worth = group_tails(y, np.arange(n), 0.7)
    expected = binom.sf(hits - 1, n, 0.7)
    assert tail[-1] == pytest.approx(expected, abs=4 * np.sqrt(expected / 2000) + 1e-3)
    np.testing.assert_array_equal(worth, np.arange(1, n + 1))


def test_copies_of_a_row_are_one_row() -> None:
    """Ten copies of each row, as a group, leave the tail where it was."""
    y = np.random.default_rng(0).integers(0, 2, 60).astype(float)
    once, _ = group_tails(y, np.arange(60), 0.4)
    again, worth = group_tails(np.repeat(y, 10), np.repeat(np.arange(60), 10), 0.4)
    assert again[-1] == pytest.approx(once[-1], abs=1e-3)
    assert worth[-1] == pytest.approx(60)


def test_alike_groups_are_worth_more_than_as_many_rows() -> None:
    """Thirty groups of twenty that are each 85% right refute 70% where thirty rows do not."""
    y = np.tile(np.append(np.ones(17), np.zeros(3)), 30)
    tail, _ = group_tails(y, np.repeat(np.arange(30), 20), 0.7)
    assert tail[-1] < 0.02 < binom.sf(25, 30, 0.7)


def test_each_group_counts_once_whatever_its_size() -> None:
    """Small groups are 84% right and large ones 54%: 69% of the rows, 76.5% of a new group."""
    sizes = np.append(np.full(3000, 10), np.full(1000, 30))
    y = np.random.default_rng(0).random(sizes.sum()) < np.repeat([0.84, 0.54], [30_000, 30_000])
    groups = np.repeat(np.arange(4000), sizes)
    mixed = np.random.default_rng(1).permutation(len(y))
    y, groups = y[mixed], groups[mixed]
    assert certify(y, np.zeros(len(y)), groups=groups, target=0.78).threshold is None
    certified = certify(y, np.zeros(len(y)), groups=groups, target=0.75)
    assert certified.threshold == 0
    assert "each group counts once" in certified.sentence
    assert y.mean() < 0.7
    assert 0.75 < mean_lower_bound(y, groups) < 0.765


def test_one_popular_group_vetoes_nothing() -> None:
    """78 of 93 right certify 70%, with a group of 1, 10 or 20 of them; 65 of 93 never do."""
    y = np.random.default_rng(0).permutation(np.append(np.ones(78), np.zeros(15)))
    for size in (1, 10, 20):
        groups = np.append(np.zeros(size, dtype=int), np.arange(1, 94 - size))
        assert certify(y, np.full(93, 0.84), groups=groups).threshold == 0.84
        assert mean_lower_bound(y, groups) > 0.72
        rare = certify(y * (np.arange(93) % 6 > 0), np.full(93, 0.84), groups=groups)
        assert rare.threshold is None


def test_names_of_groups_change_nothing() -> None:
    """Other names give the same tails and bounds; the order of the rows changes no bound."""
    rng = np.random.default_rng(0)
    y, number = rng.integers(0, 2, 300).astype(float), rng.integers(0, 60, 300)
    named = np.array([f"group {(37 * i) % 61}" for i in range(60)])[number]
    _, renamed = np.unique(named, return_inverse=True)
    np.testing.assert_array_equal(group_tails(y, number, 0.4)[0], group_tails(y, renamed, 0.4)[0])
    mixed = rng.permutation(300)
    bound = mean_lower_bound(y, number)
    assert bound == mean_lower_bound(y[mixed], named[mixed])
    parts = np.stack([np.ones(300, dtype=bool), y > 0, np.zeros(300, dtype=bool)])
    np.testing.assert_allclose(mean_lower_bounds(y, parts, number)[[0, 2]], [bound, 0.0])


def test_starts_are_doubled() -> None:
    """12 groups, 24, and so on; one start however few there are."""
    assert group_sizes(3) == (12,)
    assert group_sizes(100) == (12, 24, 48, 96)


def normal(rng: np.random.Generator, groups: int) -> np.ndarray:
    """Log odds that differ by a deviation of 1."""
    return 0.88 + rng.normal(size=groups)


def one_in_ten_bad(rng: np.random.Generator, groups: int) -> np.ndarray:
    """Nine in ten are 76% right, the tenth 9%."""
    return np.where(rng.random(groups) < 0.1, -2.3, 1.17)


@pytest.mark.parametrize("effect", [normal, one_in_ten_bad])
@pytest.mark.parametrize("groups", [12, 30])
def test_new_groups_are_not_promised_too_much(effect: Effect, groups: int) -> None:
    """Few groups of many rows, just too few of them right: counted as rows these are certified
    far more often than as groups, which are in one draw of twenty at most.
    """
    rng, false, by_rows, draws = np.random.default_rng(0), 0, 0, 60
    assert expit(effect(rng, 100_000)).mean() < 0.7
    for _ in range(draws):
        number = np.repeat(np.arange(groups), rng.integers(20, 60, groups))
        y = rng.random(len(number)) < expit(effect(rng, groups))[number]
        p = rng.random(len(number))
        false += certify(y, p, groups=number).threshold is not None
        by_rows += lower_bound(y.sum(), len(y)) > 0.7
    assert false / draws <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)
    assert by_rows >= false + 5


def test_groups_are_named_in_the_sentence() -> None:
    """How many groups it rests on; nothing of groups where each row is its own."""
    y, p = np.tile([1, 1, 1, 1, 1, 0], 100), np.linspace(1, 0, 600)
    found = certify(y, p, groups=np.repeat(np.arange(100), 6), about="questions about new ships")
    assert found.groups == 100
    refused = certify(y[:60], p[:60], groups=np.repeat(np.arange(10), 6))
    assert "from 60 labelled queries in 10 groups" in refused.sentence
    assert "more, of other groups, would suffice" in refused.sentence
    assert certify(y, p).groups is None


def test_the_design_effect_is_that_of_the_sums() -> None:
    """Against sums by group; copies have their number, single and opposed rows 1."""
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=90), rng.integers(0, 30, 90)
    sums = np.bincount(groups, values)
    many = len(np.unique(groups))
    expected = (sums**2).sum() * many / (many - 1) / (values**2).sum()
    assert design_effect(values, group_codes(groups, 90)) == pytest.approx(max(1, expected))
    copies = np.repeat(rng.normal(size=200), 5), group_codes(np.repeat(np.arange(200), 5), 1000)
    assert design_effect(*copies) == pytest.approx(5 * 200 / 199)
    assert effective_n(*copies) == pytest.approx(199)
    assert design_effect(values, group_codes(None, 90)) == 1
    pairs = group_codes(np.repeat(np.arange(45), 2), 90)
    assert design_effect(np.tile([1.0, -1.0], 45), pairs) == 1
    assert kish(group_codes(np.repeat(np.arange(3), [1, 2, 3]), 6)) == pytest.approx(14 / 6)
    assert design_effect(np.zeros(6), pairs[:6]) == pytest.approx(2)


def test_the_best_of_many_prefixes_is_not_the_luckiest() -> None:
    """A signal, groups of ten, 29% of the rows above the target: 700 labels do in four of five
    draws; the advice of 150 labels is no less, and not many times more.
    """
    rng = np.random.default_rng(0)
    needed = []
    for _ in range(30):
        p = expit(1.2 * rng.normal(size=150))
        y, groups = rng.random(150) < p, np.repeat(np.arange(15), 10)
        needed.append(certify(y, p, groups=groups, floor=0.7).labels_needed or np.inf)
    assert 650 < np.median(needed) < 2500  # by sums of the labels: about 350


def test_as_many_groups_as_were_asked_for_do() -> None:
    """Of twenty documents that are 84% right a promise needs more, and with as many as it says it
    is given in most draws; of groups that are wrong it never would be.
    """
    rng = np.random.default_rng(0)

    def sample(groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        number = np.repeat(np.arange(groups), 20)
        right = rng.beta(8.4, 1.6, groups)[number]
        return rng.random(len(number)) < right, rng.uniform(0.8, 0.88, len(number)), number

    refused = []
    for _ in range(20):
        y, p, number = sample(20)
        found = certify(y, p, groups=number)
        if found.threshold is None and found.labels_needed is not None:
            refused.append(found.labels_needed)
    assert len(refused) > 10
    enough = int(np.median(refused)) // 20
    assert 20 < enough < 120
    given = [
        certify(*sample(enough)[:2], groups=np.repeat(np.arange(enough), 20)) for _ in range(20)
    ]
    assert np.mean([found.threshold is not None for found in given]) > 0.5
    never = certify(np.zeros(60), np.linspace(1, 0, 60), groups=np.arange(60) // 3)
    assert never.labels_needed is None

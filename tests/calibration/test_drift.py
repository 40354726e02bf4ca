"""The drift alarm against SciPy's two-sample statistics, tables by hand, and its own promise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.stats import betabinom, ks_2samp

from calibration.arrays import group_codes
from calibration.drift import (
    FeatureSketch,
    Sketch,
    alarm,
    ks_bound,
    outside_p_value,
    sketch,
)
from calibration.metrics.intervals import effective_rows

NAMES = tuple(f"f{i}" for i in range(40))
LEVEL = 0.05


def world(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rows (n, 40) that hang together by four common causes; features 10 to 21 are full of ties."""
    x = rng.normal(size=(n, 4))[:, np.arange(40) % 4] + rng.normal(size=(n, 40))
    return x / np.sqrt(2)


def tied(x: np.ndarray) -> np.ndarray:
    """Features cut at 0, rounded, constant, and of two values."""
    x = x.copy()
    x[:, 10:16] = np.maximum(x[:, 10:16], 0)
    x[:, 16:20] = np.round(x[:, 16:20])
    x[:, 20] = 0
    x[:, 21] = x[:, 21] > 1.8
    return x


def rate(change: Callable[[np.ndarray], None], repeats: int, sizes: tuple = (600, 200)) -> float:
    """The share of fresh pairs of sketch and changed window that fire at LEVEL."""
    rng, fired = np.random.default_rng(0), 0
    n, m = sizes
    for _ in range(repeats):
        fitted, window = sketch(tied(world(rng, n)), NAMES), world(rng, m)
        change(window)
        fired += alarm(fitted, tied(window), level=LEVEL).fired
    return fired / repeats


# --- the promise ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "repeats"), [((600, 200), 200), ((100, 30), 100)])
def test_false_alarms_are_as_rare_as_promised(sizes: tuple, repeats: int) -> None:
    """Where nothing has changed, at most 5% of the windows fire: 40 features, heavy ties."""
    found = rate(lambda _: None, repeats, sizes)
    assert found <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / repeats)


def test_a_shift_of_two_features_is_seen() -> None:
    """Half a standard deviation in 2 of 40 features fires in more than 90% of the windows."""

    def shift(x: np.ndarray) -> None:
        x[:, :2] += 0.5

    assert rate(shift, 40) > 0.9


def test_a_spread_of_two_features_is_seen() -> None:
    """1.6 times the standard deviation, the median unmoved, fires in more than 90%."""

    def spread(x: np.ndarray) -> None:
        x[:, :2] *= 1.6

    assert rate(spread, 40) > 0.9


def test_groups_count_once() -> None:
    """Rephrasings set off the alarm where they count as rows, and not as groups."""
    rng, repeats = np.random.default_rng(1), 30
    fired = np.zeros(2)
    for _ in range(repeats):
        rows = []
        for count in (200, 80):
            groups = np.repeat(np.arange(count), rng.integers(1, 8, count))
            x = 0.95 * world(rng, count)[groups] + 0.3 * world(rng, len(groups))
            rows.append((tied(x), groups))
        (x, groups), (window, theirs) = rows
        fired[0] += alarm(sketch(x, NAMES, groups), window, level=LEVEL, groups=theirs).fired
        fired[1] += alarm(sketch(x, NAMES), window, level=LEVEL).fired
    assert fired[0] / repeats <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / repeats)
    assert fired[1] / repeats > 0.5


def test_large_groups_weigh_by_their_rows_on_both_sides() -> None:
    """Questions of two kinds, of which one comes in large groups and the other by itself: a window
    that has no groups, with as many rows of each, is no alarm.
    """
    rng, fired = np.random.default_rng(0), 0
    for _ in range(20):
        kind, other = rng.random(600) < 0.2, rng.random(200) < 0.2
        groups = np.where(kind, np.arange(600), 1000 + np.arange(600) % 12)
        rows, window = (tied(world(rng, len(k)) + 2 * k[:, None]) for k in (kind, other))
        fired += alarm(sketch(rows, NAMES, groups), window, level=LEVEL).fired
    assert fired <= 3


def rows_of(x: np.ndarray, groups: np.ndarray | None) -> float:
    """`effective_rows` for names of groups."""
    return effective_rows(x, group_codes(groups, len(x)))


def test_the_rows_of_a_group_are_worth_what_they_tell() -> None:
    """Groups that say nothing leave the rows as many, copies leave the groups; a constant column
    tells nothing.
    """
    rng = np.random.default_rng(0)
    x = np.column_stack([world(rng, 500), np.ones(500)])
    assert rows_of(x, np.arange(500) // 5) > 250
    assert rows_of(np.repeat(x, 5, axis=0), np.arange(2500) // 5) == pytest.approx(500)
    assert rows_of(x, None) == 500
    mostly = np.repeat(np.arange(100) % 7 > 0, 5)[:, None].astype(float)  # its upper end: 86%
    for column in (mostly, -mostly):
        assert rows_of(column, np.arange(500) // 5) == pytest.approx(100)
    same = np.ones((500, 2))
    assert rows_of(same, np.zeros(500)) == 1
    assert rows_of(same, np.arange(500) // 5) == 100
    assert rows_of(same, None) == 500
    assert sketch(world(rng, 60), NAMES, np.arange(60) // 10).n >= 4


# --- the two tests ----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(4, 4), (4, 1), (20, 20), (60, 7), (600, 200), (250, 251)])
def test_the_bound_is_never_below_scipys_exact_p_value(n: int, m: int) -> None:
    """For any distance, exact <= bound; it is at most twice as high far out."""
    rng = np.random.default_rng(n)
    for shift in np.linspace(0, 1.2, 25):
        exact = ks_2samp(rng.normal(size=n), rng.normal(size=m) + shift, method="exact")
        bound = ks_bound(exact.statistic, n, m)
        assert exact.pvalue <= bound * (1 + 1e-9)
        if min(n, m) >= 200 and 1e-6 < exact.pvalue < 0.01:
            assert bound < 2 * exact.pvalue


def test_rows_outside_by_hand() -> None:
    """A fifth row is the lowest or the highest of five with a chance of 2/5."""
    assert outside_p_value(1, 4, 1) == pytest.approx(2 / 5)
    assert outside_p_value(0, 4, 3) == 1
    assert outside_p_value(2, 1, 2) == pytest.approx(1)  # a range of one value holds nothing else


@pytest.mark.parametrize(("count", "n", "m"), [(3, 10, 5), (9, 600, 200), (200, 600, 200)])
def test_rows_outside_are_scipys(count: int, n: int, m: int) -> None:
    """Of n + 1 gaps between n fitted values the two outer ones get a beta-binomial share."""
    expected = betabinom.sf(count - 1, m, 2, n - 1)
    assert outside_p_value(count, n, m) == pytest.approx(expected, rel=1e-6)


def test_the_distance_is_scipys() -> None:
    """Where every value is an edge the distance is SciPy's, ties and all."""
    rng = np.random.default_rng(2)
    x, window = rng.integers(0, 8, 300), rng.integers(1, 9, 90)
    (move,) = alarm(sketch(x, ["a"]), window).moves
    assert move.distance == pytest.approx(ks_2samp(x, window).statistic, abs=1e-12)
    assert move.outside == pytest.approx((window == 8).mean())


def test_the_quantiles_lose_little_of_the_distance() -> None:
    """Of a continuous feature the edges see SciPy's distance less five points at the very most."""
    rng = np.random.default_rng(3)
    x, window = rng.normal(size=500), rng.normal(size=200) + 0.4
    (move,) = alarm(sketch(x, ["a"]), window).moves
    exact = ks_2samp(x, window).statistic
    assert exact - 0.05 <= move.distance <= exact + 1e-12


def test_more_features_cost_their_number() -> None:
    """One moved feature among d has d times its p-value alone (Bonferroni), and Holm goes on."""
    rng = np.random.default_rng(4)
    x, window = rng.normal(size=(200, 5)), rng.normal(size=(60, 5))
    window[:, 3] += 0.9
    (alone,) = alarm(sketch(x[:, 3], ["a"]), window[:, 3]).moves
    assert alone.p_value == pytest.approx(2 * ks_bound(alone.distance, 200, 60))
    every = alarm(sketch(x, "abcde"), window)
    assert every.moves[0].name == "d"
    assert every.p_value == pytest.approx(5 * alone.p_value)
    assert [move.p_value for move in every.moves] == sorted(move.p_value for move in every.moves)


# --- the sketch -------------------------------------------------------------------------------


def test_a_sketch_by_hand() -> None:
    """Half of the rows at 0 are one bin; the others are one each, and nothing lies between."""
    (feature,) = sketch([0, 0, 0, 0, 1, 2, 3, 4], ["a"]).features
    assert feature.edges == (0, 1, 2, 3, 4)
    assert feature.shares == (0.5, 0, 0.125, 0, 0.125, 0, 0.125, 0, 0.125)
    assert feature.median() == 0


def test_a_continuous_feature_has_twenty_bins_of_equal_mass() -> None:
    """Twenty-one edges, and a twentieth of the rows after one edge and up to the next."""
    (feature,) = sketch(np.random.default_rng(5).normal(size=1000), ["a"]).features
    assert len(feature.edges) == 21
    assert np.diff(feature.cumulative()[1::2]) == pytest.approx(np.full(20, 0.05), abs=1.1e-3)


def test_a_group_is_one_row() -> None:
    """A row ten times over in one group is that row."""
    ten = np.repeat([3, 1, 2, 0], 10)
    once, grouped = sketch([3, 1, 2, 0], ["a"]), sketch(ten, ["a"], ten)
    assert grouped.n == once.n == 4
    assert grouped.features[0].edges == once.features[0].edges
    assert grouped.features[0].shares == pytest.approx(once.features[0].shares)


def test_a_constant_that_is_none_any_more_is_seen() -> None:
    """Ten of 200 rows off a constant fire; no row off it moves nothing at all."""
    fitted, window = sketch(np.ones(600), ["a"]), np.ones(200)
    assert alarm(fitted, window).moves[0].distance == 0
    window[:10] = np.linspace(2, 3, 10)
    found = alarm(fitted, window)
    assert found.fired
    assert found.moves[0].outside == pytest.approx(0.05)


def test_the_last_digits_of_a_point_mass_do_not_matter() -> None:
    """A constant that another machine computes with another last digit has not moved."""
    fitted = sketch(np.full(300, 0.1 + 0.2), ["a"])
    assert alarm(fitted, np.full(100, 0.3)).moves[0].distance == 0


def test_the_order_of_features_and_rows_is_irrelevant() -> None:
    """Shuffled columns, with their names, and shuffled rows give the same drift."""
    rng = np.random.default_rng(6)
    x, window, columns = tied(world(rng, 150)), tied(world(rng, 50)), rng.permutation(40)
    window[:, 3] += 0.7
    first = alarm(sketch(x, NAMES), window)
    names = [NAMES[i] for i in columns]
    shuffled = sketch(x[:, columns][rng.permutation(150)], names)
    assert alarm(shuffled, window[:, columns][rng.permutation(50)]) == first


def test_a_sketch_comes_back_from_json_to_the_bit() -> None:
    """Through text and back, a sketch is equal, and so is what it says of a window."""
    rng = np.random.default_rng(7)
    groups = rng.integers(0, 90, 150)
    fitted = sketch(tied(world(rng, 150)), NAMES, groups)
    again = Sketch.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    window = tied(world(rng, 50))
    assert alarm(again, window) == alarm(fitted, window)


# --- what it says -----------------------------------------------------------------------------


def test_the_table_and_the_sentence() -> None:
    """The feature that moved stands first, with its medians and the share outside; frozen."""
    x = np.column_stack([np.arange(100), np.arange(100)])
    window = np.column_stack([np.arange(50) * 2, np.arange(50) * 2 + 60])
    found = alarm(sketch(x, ["still", "moved"]), window)
    assert found.table().splitlines() == [
        "       moved  fitted median  median now  outside the fit         p",
        "moved  0.600             49         108            60.0%  < 0.0001",
        "still  0.010             49          48             0.0%    1.0000",
    ]
    assert "\nmoved: MOVED  0.600" in found.table(words=str.upper)
    assert len(found.table(limit=1).splitlines()) == 2
    assert found.sentence == (
        "1 of 2 features have moved, first moved "
        "(p < 0.0001, level 0.01; 50 new rows against 100 fitted rows)."
    )
    grouped = alarm(sketch(x, ["still", "moved"], np.arange(100) // 2), window)
    assert f"100 fitted rows, worth 50 and {grouped.n} independent ones)." in grouped.sentence
    assert grouped.n < 100
    calm = alarm(sketch(x, ["still", "moved"]), x)
    assert calm.sentence.startswith("No feature has moved by more than chance (p = 1.0000")
    assert "So few" not in calm.sentence
    two = alarm(sketch(x, ["still", "moved"]), x[:2])
    assert two.sentence.endswith("So few show only a very large change.")
    assert json.loads(json.dumps(found.to_dict()))["fired"] is True
    with pytest.raises(FrozenInstanceError):
        found.level = 0.5  # type: ignore[misc]


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "names", "groups", "sentence"),
    [
        (np.zeros((9, 2)), ["a"], None, r"shape \(n, 1\)"),
        (np.zeros((9, 2)), ["a", "a"], None, "'a' twice"),
        (np.zeros((9, 0)), [], None, "at least one"),
        (np.zeros((3, 1)), ["a"], None, "at least 4 independent rows, got 3"),
        (np.zeros((9, 1)), ["a"], [1, 2, 3] * 3, "at least 4 independent rows, got 3"),
        (np.zeros((9, 1)), ["a"], [1, 2], "one group per row"),
        (np.full((9, 1), np.nan), ["a"], None, "finite"),
    ],
)
def test_rows_that_make_no_sketch(x: np.ndarray, names: list, groups: list, sentence: str) -> None:
    """What came and what was expected."""
    with pytest.raises(ValueError, match=sentence):
        sketch(x, names, groups)


@pytest.mark.parametrize(
    ("x", "level", "sentence"),
    [
        (np.zeros((9, 2)), 0.01, r"shape \(n, 1\)"),
        (np.zeros((0, 1)), 0.01, "at least one new row"),
        (np.zeros((9, 1)), 0.0, "between 0 and 1, got 0"),
    ],
)
def test_windows_that_cannot_be_compared(x: np.ndarray, level: float, sentence: str) -> None:
    """Another width, no row, or a level that is none."""
    with pytest.raises(ValueError, match=sentence):
        alarm(sketch(np.arange(9), ["a"]), x, level=level)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "map"}, "expected kind 'drift-sketch'"),
        ({"more": 1}, "a drift sketch has the unknown more; its keys are kind, n, rows, features"),
        ({"n": 3}, "at least 4 independent rows, got 3"),
        ({"features": 1}, "a list of features"),
        (
            {"features": [{"name": "a"}]},
            "a feature of a drift sketch lacks edges, shares; its keys are name,",
        ),
        ({"features": [{"name": "a", "edges": [2, 1], "shares": [1, 0, 0]}]}, "'a': edges must"),
        ({"features": [{"name": "a", "edges": [1, 2], "shares": [1]}]}, "need 3 shares, got 1"),
        ({"features": [{"name": "a", "edges": [1], "shares": [0.9]}]}, "sum to 1"),
        ({"features": [{"name": "a", "edges": None, "shares": [1]}]}, "a list of numbers"),
        ({"features": [{"name": "a", "edges": [], "shares": [1]}]}, "at least one"),
    ],
)
def test_json_that_is_no_sketch(change: dict, sentence: str) -> None:
    """A damaged file is refused with the part that is wrong."""
    with pytest.raises(ValueError, match=sentence):
        Sketch.from_dict({**sketch(np.arange(9), ["a"]).to_dict(), **change})


def test_a_sketch_needs_a_feature_a_name() -> None:
    """Names and features are told apart by number before they are compared."""
    with pytest.raises(ValueError, match="2 names need as many features, got 1"):
        Sketch(("a", "b"), 9, (FeatureSketch((1.0,), (1.0,)),), 9)

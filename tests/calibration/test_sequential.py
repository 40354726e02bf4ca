"""The sequential tests against all outcomes there are, a slow second hand, and their promise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import beta, binom

from calibration.sequential import (
    DIRECTIONS,
    FALLS,
    PARTS,
    SIZES,
    AccuracyMonitor,
    CalibrationMonitor,
    Wealth,
)

STEPS = 2000
LEVEL = 0.05

CONFIDENCES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "always 0.7": lambda rng: np.full(STEPS, 0.7),
    "uniform": lambda rng: rng.random(STEPS),
    "near 0 and 1": lambda rng: rng.beta(0.05, 0.05, STEPS),
    "sure, then at the ends": lambda rng: np.append(rng.beta(8, 2, STEPS - 99), np.ones(99)),
}


def may_be(repeats: int) -> float:
    """The most that a rate of LEVEL shows in this many repeats: three standard errors."""
    return LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / repeats)


def labels_until(
    watch: CalibrationMonitor | AccuracyMonitor, rng: np.random.Generator, draw: Callable
) -> int:
    """The number of further labels, one by one, after which the watch alarms; at most 3,000."""
    before = watch.n
    while not watch.alarmed and watch.n < before + 3000:
        watch = watch.update(*draw(rng))
    return watch.n - before


# --- the promise ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIDENCES)
def test_a_true_model_is_seldom_alarmed_at_ever(name: str) -> None:
    """Looked at after each of 2,000 labels, at most 5% of calibrated streams ever alarm."""
    rng = np.random.default_rng(len(name))
    streams = (CONFIDENCES[name](rng) for _ in range(150))
    alarms = [
        CalibrationMonitor.start(LEVEL).update(rng.random(STEPS) < p, p).alarmed for p in streams
    ]
    assert np.mean(alarms) <= may_be(150)


def test_broken_promises_are_seen_within_a_few_labels() -> None:
    """Promised 0.7 and right 0.43: the median alarm comes within 65 labels, in words."""
    rng, found = np.random.default_rng(1), []
    for _ in range(60):
        found.append(
            labels_until(CalibrationMonitor.start(), rng, lambda r: (r.random() < 0.43, 0.7))
        )
    assert 15 <= np.median(found) <= 65
    p = rng.uniform(0.3, 0.95, 300)
    watch = CalibrationMonitor.start().update(rng.random(300) < p - 0.27, p)
    assert watch.sentence.startswith("Alarm within 300 labels: the confidences promise too much; ")
    assert "promised and " in watch.sentence


@pytest.mark.parametrize(
    ("words", "truth"),
    [
        ("promise too much", lambda p: p - 0.2 * np.sin(np.pi * p)),
        ("promise too little", lambda p: p + 0.2 * np.sin(np.pi * p)),
        ("are too sure", lambda p: 0.4 * p + 0.3),
        ("are too timid", lambda p: expit(3 * logit(p))),
    ],
)
def test_every_direction_is_told(words: str, truth: Callable) -> None:
    """Also where promises are kept in the mean, as by one that is too sure."""
    rng = np.random.default_rng(2)
    p = rng.random(1000)
    watch = CalibrationMonitor.start().update(rng.random(1000) < truth(p), p)
    assert watch.alarmed
    assert watch.direction == words


def test_a_change_after_a_good_time_is_seen() -> None:
    """After 2,000 calibrated labels it takes less than 220 to see 0.7 become 0.43."""
    rng, found = np.random.default_rng(3), []
    for _ in range(20):
        p = rng.beta(5, 2, STEPS)
        good = CalibrationMonitor.start(LEVEL).update(rng.random(STEPS) < p, p)
        found.append(labels_until(good, rng, lambda r: (r.random() < 0.43, 0.7)))
    assert np.median(found) <= 220


@pytest.mark.parametrize("truth", [0.7, 0.8])
def test_an_accuracy_that_holds_is_seldom_alarmed_at(truth: float) -> None:
    """At the target or above it, at most 5% of the streams ever alarm."""
    rng = np.random.default_rng(4)
    streams = (rng.random(STEPS) < truth for _ in range(150))
    alarms = [AccuracyMonitor.start(0.7, LEVEL).update(y).alarmed for y in streams]
    assert np.mean(alarms) <= may_be(150)


def test_an_accuracy_that_falls_is_seen() -> None:
    """Target 0.7 and right 0.5: the median alarm comes within 60 labels."""
    rng, found = np.random.default_rng(5), []
    for _ in range(60):
        found.append(labels_until(AccuracyMonitor.start(0.7), rng, lambda r: (r.random() < 0.5,)))
    assert 20 <= np.median(found) <= 60


def test_the_bounds_hold_at_all_times() -> None:
    """The running mean, of an accuracy that changes, is seldom ever outside either bound."""
    rng, repeats, ever = np.random.default_rng(6), 100, np.zeros(2)
    truth = np.append(np.full(150, 0.9), np.full(150, 0.4))
    mean = np.cumsum(truth) / np.arange(1, 301)
    for _ in range(repeats):
        right = np.cumsum(rng.random(300) < truth)
        outside = np.zeros(2, dtype=bool)
        for n in (5, 10, 20, 40, 80, 160, 300):
            wealth = replace(
                Wealth.start(np.ones(len(FALLS))), n=n
            )  # the bounds need n and hits only
            watch = AccuracyMonitor(LEVEL, 0.7, int(right[n - 1]), wealth)
            outside |= [watch.upper < mean[n - 1], watch.lower > mean[n - 1]]
        ever += outside
    assert (ever / repeats <= may_be(repeats)).all()


# --- the arithmetic ---------------------------------------------------------------------------


@pytest.mark.parametrize("p", [(0.7, 0.7, 0.7, 0.7), (0.0, 0.3, 1.0, 0.99), (1e-9, 1.0, 0.5, 0.2)])
def test_the_price_is_fair(p: tuple) -> None:
    """Over all outcomes of four labels, weighed by their chances, the mean e-value is 1."""
    mean = 0.0
    for y in itertools.product((0, 1), repeat=4):
        chance = np.prod([q if hit else 1 - q for hit, q in zip(y, p, strict=True)])
        mean += chance * CalibrationMonitor.start(tolerance=0).update(y, p).e_value
    assert mean == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("shift", [-0.1, -0.03, 0.0, 0.07, 0.1])
def test_within_the_tolerance_no_bet_grows(shift: float) -> None:
    """Over all outcomes of four labels whose truth is off by no more than it, the mean e-value is 1
    at most; off by more it may be higher.
    """
    p = np.array([0.7, 0.02, 0.95, 0.4])

    def mean(truth: np.ndarray) -> float:
        total = 0.0
        for y in itertools.product((0, 1), repeat=4):
            chance = np.prod([q if hit else 1 - q for hit, q in zip(y, truth, strict=True)])
            total += chance * CalibrationMonitor.start(tolerance=0.1).update(y, p).e_value
        return total

    assert mean(np.clip(p + shift, 0, 1)) <= 1 + 1e-12
    assert mean(np.array([0.1, 0.02, 0.2, 0.4])) > 1


def test_a_map_that_is_nearly_true_is_seldom_alarmed_at() -> None:
    """A twentieth off all the way: most streams alarm without a tolerance, few with it. What is
    told of an alarm names the tolerance.
    """
    rng, alarms = np.random.default_rng(8), np.zeros(2)
    for _ in range(60):
        p = rng.uniform(0.1, 0.9, STEPS)
        y = rng.random(STEPS) < p - 0.05
        alarms += [CalibrationMonitor.start(tolerance=t).update(y, p).alarmed for t in (0.0, 0.05)]
    assert alarms[0] / 60 > 0.8
    assert alarms[1] / 60 <= may_be(60)
    watch = CalibrationMonitor.start().update(np.zeros(99), np.full(99, 0.7))
    assert "level 0.05, tolerance 0.04" in watch.sentence
    with pytest.raises(ValueError, match="tolerance must lie in"):
        CalibrationMonitor.start(tolerance=1.0)


def test_a_shift_of_a_tenth_is_told_of_in_time() -> None:
    """In more than half of the streams within 500 labels; the wealth of equal parts took 700."""
    rng, told = np.random.default_rng(3), 0
    for _ in range(60):
        p = expit(0.8 + 1.2 * rng.normal(size=500))
        told += CalibrationMonitor.start().update(rng.random(500) < p - 0.1, p).alarmed
    assert told > 30


@pytest.mark.parametrize("truth", [0.7, 0.75, 1.0])
def test_the_price_of_an_accuracy_is_not_too_low(truth: float) -> None:
    """At the target the mean e-value of six labels is 1; above it less."""
    mean = 0.0
    for hits in range(7):
        orders = [AccuracyMonitor.start(0.7).update(y).e_value for y in _orders(hits, 6)]
        mean += binom.pmf(hits, 6, truth) * np.mean(orders)
    assert mean == pytest.approx(1, abs=1e-12) if truth == 0.7 else mean < 1


def _orders(hits: int, n: int) -> list[list[int]]:
    return [[i in places for i in range(n)] for places in itertools.combinations(range(n), hits)]


def test_the_e_value_by_a_slow_second_hand() -> None:
    """A mean over all bets, and over the label each begins at, of likelihood ratios."""
    rng = np.random.default_rng(7)
    p = rng.uniform(0.05, 0.95, 12)
    y = rng.random(12) < 0.3
    wealth, bets = 0.0, [(s * a, s * c) for _, a, c in DIRECTIONS for s in SIZES]
    assert PARTS.mean() == pytest.approx(1)
    for (shift, slope), part in zip(bets, PARTS, strict=True):
        other = expit(logit(p) + shift + slope * (2 * p - 1))
        ratio = np.where(y, other / p, (1 - other) / (1 - p))
        for start in range(12):
            won = np.prod(ratio[start:]) / ((start + 1) * (start + 2))
            wealth += part * won / len(bets)
    wealth += 1 / 13  # what begins later has not been bet yet
    watch = CalibrationMonitor.start(tolerance=0).update(y, p)
    assert watch.e_value == pytest.approx(wealth, rel=1e-12)
    assert watch.wealth.p_value <= 1 / watch.e_value + 1e-12


def test_in_parts_or_at_once() -> None:
    """One by one, in parts or at once: the same evidence, and the same highest one."""
    rng = np.random.default_rng(8)
    p, y = rng.random(60), rng.random(60) < 0.3
    whole, parts, single = (
        CalibrationMonitor.start().update(y, p),
        CalibrationMonitor.start(),
        CalibrationMonitor.start(),
    )
    for part in np.split(np.arange(60), [1, 20, 21]):
        parts = parts.update(y[part], p[part])
    for label, confidence in zip(y, p, strict=True):
        single = single.update(label, confidence)
    for other in (parts, single):
        assert (other.n, other.hits) == (60, whole.hits)
        assert other.e_value == pytest.approx(whole.e_value, rel=1e-9)
        assert other.wealth.peak == pytest.approx(whole.wealth.peak, rel=1e-9)


def test_an_alarm_stays() -> None:
    """Once at 1 / level, always alarmed, though the evidence may fall again."""
    p = np.full(1000, 0.7)
    alarmed = CalibrationMonitor.start().update(np.zeros(20), p[:20])
    later = alarmed.update(np.arange(1000) % 10 < 7, p)
    assert alarmed.e_value >= 20 > later.e_value
    assert later.alarmed


def test_the_impossible_is_strong_evidence_and_finite() -> None:
    """A miss at confidence 1 multiplies the boldest bet by e^2 and breaks nothing."""
    once = CalibrationMonitor.start().update(0, 1.0)
    assert 1 < once.e_value < np.exp(2)
    worst = CalibrationMonitor.start().update(np.zeros(5000), np.ones(5000))
    assert np.isfinite(worst.e_value)
    assert "highest 1.01e+304" in worst.sentence


@pytest.mark.parametrize(("hits", "n"), [(0, 40), (20, 40), (350, 500), (40, 40)])
def test_the_bounds_of_an_accuracy(hits: int, n: int) -> None:
    """They hold the share seen, and are at most 2.2 times as far off as those of one look."""
    y = np.arange(n) < hits
    watch = AccuracyMonitor.start(level=LEVEL).update(y)
    exact = beta.ppf(1 - LEVEL, hits + 1, n - hits) if hits < n else 1.0
    assert hits / n <= exact <= watch.upper <= min(1, hits / n + 2.2 * (exact - hits / n) + 1e-9)
    mirror = AccuracyMonitor.start(level=LEVEL).update(~y)
    assert watch.lower == pytest.approx(1 - mirror.upper)


def test_nothing_is_known_at_the_start() -> None:
    """No label: an e-value of 1, no alarm, bounds of 0 and 1."""
    assert CalibrationMonitor.start().e_value == pytest.approx(1)
    fresh = AccuracyMonitor.start()
    assert (fresh.lower, fresh.upper, fresh.alarmed) == (0, 1, False)
    assert CalibrationMonitor.start().sentence.startswith("No alarm after 0 labels")


def test_sentences() -> None:
    """What was promised, what came, and the evidence."""
    watch = CalibrationMonitor.start().update([1, 1, 0, 1], [0.7, 0.8, 0.6, 0.7])
    assert watch.sentence.startswith("No alarm after 4 labels: 70.0% promised and 75.0% were")
    accuracy = AccuracyMonitor.start(0.7).update(np.arange(100) % 2)
    assert accuracy.sentence.startswith("Alarm: 50 of 100 accepted answers were right, between")
    assert "is or was below 70%" in accuracy.sentence
    assert AccuracyMonitor.start(0.7).update([1]).sentence.startswith("No alarm: 1 of 1")


# --- the state --------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [CalibrationMonitor.start(0.1), AccuracyMonitor.start(0.6, 0.1)])
def test_a_watch_goes_on_from_json_to_the_bit(start: CalibrationMonitor | AccuracyMonitor) -> None:
    """Through text and back it is equal, and so is what more labels make of it; frozen."""
    rng = np.random.default_rng(9)
    more = (rng.random(30) < 0.5, rng.random(30))[
        : 2 if isinstance(start, CalibrationMonitor) else 1
    ]
    watch = start.update(*more)
    again = type(start).from_dict(json.loads(json.dumps(watch.to_dict())))
    assert again == watch
    assert again.update(*more) == watch.update(*more)
    assert start.n == 0
    with pytest.raises(FrozenInstanceError):
        watch.level = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("y", "p", "sentence"),
    [
        ([0, 1], [0.5], "y has shape"),
        ([2], [0.5], "0 or 1, got 2"),
        ([1], [1.5], r"lie in \[0, 1\], got 1.5"),
    ],
)
def test_labels_that_cannot_be_counted(y: list, p: list, sentence: str) -> None:
    """Both watches check their labels as the metrics do."""
    with pytest.raises(ValueError, match=sentence):
        CalibrationMonitor.start().update(y, p)
    if y == [2]:
        with pytest.raises(ValueError, match=sentence):
            AccuracyMonitor.start().update(y)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "map"}, "expected kind 'calibration-monitor', got 'map'"),
        ({"more": 1}, r"the state of a monitor \(calibration-monitor\) has the unknown more"),
        ({"level": 1.0}, "level must lie between 0 and 1, got 1.0"),
        ({"level": "0.05"}, "level must be a number, got '0.05'"),
        ({"hits": 1}, "hits must lie between 0 and n, got 1 of 0"),
        ({"promised": 0.5}, "promised must lie between 0 and 0"),
        ({"wealth": None}, "expected its wealth with the keys stakes, n, peak, got None"),
        ({"wealth": {"stakes": [-1.0], "n": 0, "peak": 0.0}}, "expected 16 stakes, got 1"),
        ({"wealth": {"stakes": ["a"], "n": 0, "peak": 0.0}}, "stakes must be a number, got 'a'"),
        ({"wealth": {"stakes": [np.inf], "n": 0, "peak": 0.0}}, "stakes must be finite, got inf"),
        ({"wealth": {"stakes": [-1.0], "n": -1, "peak": 0.0}}, "n must be a whole number"),
    ],
)
def test_json_that_is_no_monitor(change: dict, sentence: str) -> None:
    """A damaged state is refused with the part that is wrong."""
    with pytest.raises(ValueError, match=sentence):
        CalibrationMonitor.from_dict({**CalibrationMonitor.start().to_dict(), **change})


def test_an_accuracy_needs_a_target_that_can_be_missed() -> None:
    """0 cannot be missed, and 1 is missed at the first mistake."""
    with pytest.raises(ValueError, match=r"target must lie between 0 and 1, got 1.0"):
        AccuracyMonitor.start(1.0)
    with pytest.raises(
        ValueError, match=r"the state of a monitor \(accuracy-monitor\) lacks target"
    ):
        AccuracyMonitor.from_dict(CalibrationMonitor.start().to_dict())

"""Exact binomial bounds against SciPy's binomial test and against the binomial tail itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom, binomtest

from calibration import sequence_tests, thresholds
from calibration.sequence_tests import foreseen_place, refuted, starts_of, tails
from calibration.thresholds import (
    Certificate,
    binomial_interval,
    binomial_tail,
    certify,
    lower_bound,
    upper_bound,
)

Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]


@pytest.mark.parametrize(("hits", "n"), [(1, 3), (7, 10), (65, 80), (700, 1000), (10, 10)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_bounds_are_scipys(hits: int, n: int, level: float) -> None:
    """Clopper-Pearson as in scipy.stats.binomtest, one-sided."""
    low = binomtest(hits, n, alternative="greater").proportion_ci(level, method="exact").low
    high = binomtest(hits, n, alternative="less").proportion_ci(level, method="exact").high
    assert lower_bound(hits, n, level=level) == pytest.approx(low, abs=1e-12)
    assert upper_bound(hits, n, level=level) == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (0, 9), (7, 10), (9, 9)])
def test_an_interval_is_scipys(hits: int, n: int) -> None:
    """Two-sided, as in scipy.stats.binomtest; of nothing it is all of [0, 1]."""
    expected = binomtest(hits, n).proportion_ci(0.95, method="exact") if n else (0.0, 1.0)
    assert binomial_interval(hits, n) == pytest.approx(tuple(expected), abs=1e-12)


def test_bounds_have_their_meaning() -> None:
    """At the bound, as many hits or more have a chance of exactly 5%."""
    assert binom.sf(64, 80, lower_bound(65, 80)) == pytest.approx(0.05)
    assert binom.cdf(65, 80, upper_bound(65, 80)) == pytest.approx(0.05)


def test_the_ends() -> None:
    """No hit, no miss and no case at all have the bounds that say nothing."""
    assert (lower_bound(0, 9), upper_bound(9, 9)) == (0.0, 1.0)
    assert (lower_bound(0, 0), upper_bound(0, 0)) == (0.0, 1.0)
    assert upper_bound(0, 9) == pytest.approx(1 - 0.05 ** (1 / 9))


@pytest.mark.parametrize(("hits", "n", "level"), [(3, 2, 0.9), (-1, 2, 0.9), (1, 2, 1.0)])
def test_nonsense_is_refused(hits: int, n: int, level: float) -> None:
    """More hits than cases, or a level of 1, is a mistake of the caller."""
    with pytest.raises(ValueError, match="must lie between 0 and"):
        lower_bound(hits, n, level=level)


@pytest.mark.parametrize(("hits", "n"), [(3, np.inf), ("a", 3), (3, "a"), (1j, 3), (None, 3)])
def test_bounds_need_numbers(hits: Any, n: Any) -> None:
    """An infinite sample had the bound NaN, and text a TypeError."""
    for bound in (lower_bound, upper_bound):
        with pytest.raises(ValueError, match="must be"):
            bound(hits, n)


def strong(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A confidence that is the truth: (p, truth, group) of 500 queries; 73% could be accepted."""
    truth = expit(0.3 + 2.2 * rng.normal(size=500))
    return truth, truth, np.arange(500)


def uninformative(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A confidence that says nothing; every query is right with 68%."""
    return rng.random(500), np.full(500, 0.68), np.arange(500)


def tied(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two values of confidence, and no more than 69% right in the upper one."""
    p = np.where(rng.random(500) < 0.6, 0.8, 0.4)
    return p, np.where(p > 0.5, 0.69, 0.3), np.arange(500)


def clustered(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of ten that are right or wrong together, 68% of them; p says nothing."""
    right = rng.random(50) < 0.68
    return np.repeat(rng.random(50), 10), np.repeat(right * 1.0, 10), np.repeat(np.arange(50), 10)


@pytest.fixture
def promises_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many labels a refusal advises is not asked: most of the time of many draws."""
    monkeypatch.setattr(thresholds, "_labels_needed", lambda *_: None)


def test_a_certificate_by_hand() -> None:
    """The tests are those of SciPy, one a rank, at what the starts passed so far have brought."""
    y = np.array([1] * 60 + [0] * 30 + [1] * 60)
    p = np.linspace(0.9, 0.1, 150)
    found = certify(y, p)
    k = 60  # all starts lie before, and pass
    while binomtest(int(y[: k + 1].sum()), k + 1, 0.7, alternative="greater").pvalue <= 0.05:
        k += 1
    assert (found.accepted, found.right, found.queries) == (k, y[:k].sum(), 150)
    assert found.threshold == p[k - 1]
    assert (p >= found.threshold).sum() == k


def test_a_bad_beginning_costs_its_share_of_the_chance() -> None:
    """Where the first start fails, the second has two thirds of 5% and not all of it."""
    ends, starts, chances = np.arange(60), np.array([18, 48]), np.array([0.05, 0.1]) / 3
    for tail, last in ((0.04, -1), (0.03, 59), (0.016, 59)):
        assert refuted(np.full(60, tail), ends, starts, chances).max(initial=-1) == last
    size = np.arange(1, 61)
    passed = np.where(size < 49, 0.01, 0.04)
    np.testing.assert_array_equal(refuted(passed, ends, starts, chances), ends[18:])
    broken = np.where(size == 30, 0.5, passed)
    np.testing.assert_array_equal(refuted(broken, ends, starts, chances), ends[18:29])


def test_most_of_the_chance_goes_where_the_confidences_say() -> None:
    """No other place passes as often, by confidences that are true or a log odds too high; starts
    at one place have their chances together.
    """
    falling, size, ends = np.linspace(0.9, 0.1, 150), np.arange(1.0, 151), np.arange(150)
    place = foreseen_place(falling, size, ends, 0.7, 0.05)
    scores = np.log(falling / (1 - falling))

    def power(k: int) -> float:
        needed = next(h for h in range(k + 2) if binom.sf(h - 1, k, 0.7) <= 0.95 * 0.05)
        means = [expit(scores[:k] - high).mean() for high in (0, 1)]
        return sum(binom.sf(needed - 1, k, mean) for mean in means)

    assert power(place + 1) == pytest.approx(max(power(k) for k in range(1, 151)))
    starts, chances = starts_of(size, ends, (19, 49), place, 0.05)
    assert chances[starts == place].sum() >= 0.05 * 0.95 - 1e-12
    assert chances.sum() == pytest.approx(0.05)
    starts, chances = starts_of(size, ends, (19, 49), 18, 0.05)
    np.testing.assert_array_equal(starts, [18, 48])
    np.testing.assert_allclose(chances, [0.0475 + 0.0025 / 3, 0.005 / 3])


@pytest.mark.usefixtures("promises_alone")
@pytest.mark.parametrize(
    ("intercept", "slope", "n", "least"),
    [(-0.72, 2.3, 100, 0.3), (0.72, 2.3, 50, 0.55), (-1.0, 5.0, 50, 0.6)],
)
def test_fifty_labels_certify_what_they_can(
    intercept: float, slope: float, n: int, least: float
) -> None:
    """Base rates of .4 and .6 and AUROC of .85 to .95: how often a true confidence is certified."""
    rng = np.random.default_rng(0)
    given = 0
    for _ in range(150):
        p = expit(intercept + slope * rng.normal(size=n))
        given += certify(rng.random(n) < p, p).threshold is not None
    assert given / 150 > least


def test_sizes_are_what_their_accuracies_need() -> None:
    """With that many rows, and not with one less, such an accuracy refutes 70% four times in
    five; the gaps are halved until there are no more rows.
    """
    sizes = sequence_tests.rows_to_begin_with(0.7, 0.95, 16_000)
    assert sizes[:4] == (19, 49, 219, 900)
    assert len(sizes) == 6
    for gap, n in zip((0.75, 0.5, 0.25, 0.125, 0.0625, 0.03125), sizes, strict=True):
        for m, enough in ((n, True), (n - 1, False)):
            least = binom.isf(0.05, m, 0.7) + 1
            assert (binom.sf(least - 1, m, 0.7 + 0.3 * gap) >= 0.8) == enough
    assert sequence_tests.rows_to_begin_with(0.7, 0.95, 18) == (18,)


def test_tails_are_the_binomials() -> None:
    """As SciPy's binomial has them."""
    y = np.array([0, 1, 1, 0, 1, 1.0])
    expected = [binom.sf(y[:k].sum() - 1, k, 0.7) for k in range(1, 7)]
    np.testing.assert_allclose(tails(y, 0.7), expected)


@pytest.mark.usefixtures("promises_alone")
def test_many_labels_certify_what_little_is_above_the_target() -> None:
    """72% right and 20,000 labels, of confidences that say nothing: where one test of all of them
    would nearly always pass, a certificate is given in more than four draws of five.
    """
    rng = np.random.default_rng(0)
    draws = [certify(rng.random(20_000) < 0.72, rng.random(20_000)) for _ in range(40)]
    assert np.mean([found.threshold is not None for found in draws]) > 0.8


@pytest.mark.usefixtures("promises_alone")
@pytest.mark.parametrize("world", [uninformative, tied, clustered])
def test_false_certificates_are_rare(world: Draw) -> None:
    """Where no threshold deserves it, at most one draw in twenty gets one (400 draws, 3 errors)."""
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(400):
        p, truth, groups = world(rng)
        y = rng.random(len(p)) < truth
        false += certify(y, p, groups=groups).threshold is not None
    assert false / 400 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_groups_of_good_rows_are_certified_by_rows() -> None:
    """Forty groups of ten with nine right each, and sixty single rows that are wrong: of the rows
    above 0.5 nine in ten are right, and that is what is promised, not the share of groups.
    """
    y = np.append(np.tile([1] * 9 + [0], 40), np.zeros(60))
    p = np.append(np.linspace(0.95, 0.6, 400), np.linspace(0.4, 0.1, 60))
    groups = np.append(np.repeat(np.arange(40), 10), np.arange(40, 100))
    found = certify(y, p, groups=groups)
    assert found.threshold is not None
    assert found.accepted > 390
    assert found.queries == 460


@pytest.mark.usefixtures("promises_alone")
def test_clusters_would_fool_a_count_of_rows() -> None:
    """The control: taken as independent, rows that are right together are certified too often."""
    rng = np.random.default_rng(0)
    draws = [
        (p, rng.random(len(p)) < truth) for p, truth, _ in (clustered(rng) for _ in range(200))
    ]
    assert np.mean([certify(y, p).threshold is not None for p, y in draws]) > 0.1


def test_a_strong_signal_keeps_most_of_its_coverage() -> None:
    """Of the 73% that could be accepted with 70% right, more than four fifths are, and true."""
    rng = np.random.default_rng(0)
    shares, false = [], 0
    for _ in range(200):
        p, truth, groups = strong(rng)
        found = certify(rng.random(500) < truth, p, groups=groups)
        assert found.threshold is not None
        shares.append(found.accepted / 500)
        sample = expit(0.3 + 2.2 * rng.normal(size=20_000))
        false += sample[sample >= found.threshold].mean() < 0.7
    assert np.mean(shares) > 0.8 * 0.733
    assert false / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)


def test_a_refusal_says_what_it_would_take() -> None:
    """75% of 100 are too few and more would do; 50% is never enough."""
    y = np.tile([1, 1, 0, 1], 25)
    few = certify(y, np.linspace(1, 0, 100))
    assert few.threshold is None
    assert few.labels_needed is not None
    assert 100 < few.labels_needed < 1500
    assert few.labels_missing is not None
    assert few.labels_missing % 10 == 0
    assert 0 <= few.labels_missing - (few.labels_needed - 100) < 10
    assert f"about {few.labels_missing} more" in few.sentence
    assert replace(few, labels_needed=101).labels_missing == 10
    mixed = replace(few, labels_needed=300, copies=20)  # 160 of 200 more are to be labelled
    assert mixed.labels_missing == 160
    assert "from 80 labelled queries and 20 unanswerable copies: about 160" in mixed.sentence
    right = certify(np.ones(20), np.linspace(1, 0, 20), target=0.9)
    assert right.labels_needed is not None
    assert 20 < right.labels_needed < 300
    never = certify(np.tile([0, 1], 200), np.linspace(1, 0, 400))
    assert (never.threshold, never.labels_needed) == (None, None)
    assert "better scores are needed" in never.sentence


def test_labels_are_advised_up_to_forty_times_as_many() -> None:
    """At 36 of 49, 20 times as many labels are too few and 40 times as many suffice."""
    refused = certify(np.repeat([1, 0], [36, 13]), np.full(49, 0.7))
    assert refused.threshold is None
    assert refused.labels_needed is not None
    assert 20 * 49 < refused.labels_needed <= 40 * 49


def test_as_many_labels_as_were_asked_for_do() -> None:
    """Of fresh samples of that size, four in five or so are certified."""
    rng = np.random.default_rng(0)

    def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
        p = expit(-0.4 + 1.3 * rng.normal(size=n))
        return rng.random(n) < p, p

    refused = [found for _ in range(20) if (found := certify(*sample(150))).threshold is None]
    needed = int(np.median([found.labels_needed or 6000 for found in refused]))
    assert 200 < needed < 2000
    assert np.mean([certify(*sample(needed)).threshold is not None for _ in range(60)]) > 0.6


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_the_rows_is_nothing(seed: int) -> None:
    """Rows in another order give the same certificate, ties or no ties."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(200), 1)
    y = rng.random(200) < 0.5 + p / 2
    moved = rng.permutation(200)
    assert certify(y, p) == certify(y[moved], p[moved])


@pytest.mark.parametrize("wrong", [{"target": 1.0}, {"level": 0.0}])
def test_a_target_or_a_level_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    """Certainty cannot be certified."""
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must lie between 0 and 1"):
        certify([0, 1], [0.2, 0.8], **wrong)


def test_copies_of_rows_certify_nothing_new() -> None:
    """Each row ten times over, as one group, has no lower threshold than the rows have once."""
    rng = np.random.default_rng(3)
    p, truth, _ = strong(rng)
    y = rng.random(500) < truth
    once = certify(y, p)
    again = certify(np.repeat(y, 10), np.repeat(p, 10), groups=np.repeat(np.arange(500), 10))
    assert once.threshold is not None
    assert again.threshold is not None
    assert again.threshold >= once.threshold
    assert again.accepted >= 0.7 * 10 * once.accepted


@pytest.mark.usefixtures("promises_alone")
def test_what_is_certified_was_tested() -> None:
    """Of p from .7 up .66 are right, of the others .85: together enough, those accepted not.

    With the floor at what is accepted, a false promise is rare; without, the promise is about all.
    """
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(200):
        p = rng.uniform(0.4, 0.95, 1000)
        y = rng.random(1000) < np.where(p >= 0.7, 0.66, 0.85)
        false += certify(y, p, floor=0.7).threshold is not None
    assert false / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    everything = certify(rng.random(1000) < 0.85, p)
    assert everything.accepted == 1000
    assert everything.promises(0.41)


@pytest.mark.parametrize("floor", [0.7, 0.8])
def test_no_threshold_lies_below_the_floor(floor: float) -> None:
    """The lowest one from there up that is refuted; among these a later choice is valid too."""
    rng = np.random.default_rng(0)
    p = rng.random(500)
    found = certify(rng.random(500) < 0.85, p, floor=floor)
    assert found.threshold == p[p >= floor].min()
    assert [found.promises(q) for q in (0.05, 0.69, 0.85)] == [False, False, True]


def test_the_promise_names_its_questions() -> None:
    """The sentence says what is promised of; an empty word is refused."""
    y, p = np.append(np.ones(90), np.zeros(60)), np.linspace(0.9, 0.1, 150)
    found = certify(y, p, about="questions about new documents")
    assert found.threshold is not None
    assert found.sentence == (
        f"Certified from {found.threshold:.3f} up: of questions about new documents, at least 70% "
        "get a right answer, at 95% confidence. It rests on 150 labelled queries: "
        f"{found.accepted} of them ({found.accepted / 150:.0%}) reach {found.threshold:.3f}, and "
        "90 of these get a right answer."
    )
    assert found.brief == (
        f"Certified from {found.threshold:.3f} up: at least 70%, for questions about new documents."
    )
    weak = certify(np.arange(60) % 4 != 0, np.linspace(0.9, 0.5, 60))
    assert str(weak.labels_missing) in weak.brief.replace(",", "")
    assert "too few" in certify([0, 0, 1, 0], [0.9, 0.8, 0.7, 0.6]).brief
    with pytest.raises(ValueError, match="about should say"):
        certify(y, p, about="")


def test_a_certificate_says_what_is_promised() -> None:
    """Of contexts: what they hold; the numbers are the same."""
    y, p = np.arange(100) < 90, np.linspace(0.99, 0.5, 100)
    plain, context = certify(y, p), certify(y, p, event="have an answer")
    assert (plain.threshold, plain.right) == (context.threshold, context.right)
    assert "at least 70% get a right answer, at 95% confidence" in plain.sentence
    assert "at least 70% have an answer, at 95% confidence" in context.sentence
    assert context.sentence.endswith("and 90 of these have an answer.")
    assert Certificate(**context.to_dict()) == context
    with pytest.raises(ValueError, match="event should say"):
        certify(y, p, event="")


def test_a_floor_that_nothing_reaches_takes_better_scores() -> None:
    """Of many rows; a few may be unlucky. A floor that is no number is refused."""
    p = np.linspace(0.05, 0.69, 200)
    assert "better scores" in certify(np.ones(200), p, floor=0.7).sentence
    assert "more" in certify(np.ones(20), p[-20:], floor=0.7).sentence
    for floor, sentence in (
        (np.nan, "floor should be at least 0, got nan"),
        (-1.0, "floor should be at least 0, got -1.0"),
        ("0.7", "floor must be a number, got '0.7'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            certify(np.ones(200), p, floor=floor)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [np.array, np.float32, lambda value: Decimal(str(value))])
def test_numbers_of_any_type_certify(number: Callable[[float], Any]) -> None:
    """Arrays without an axis, and decimals; the certificate goes through JSON."""
    y, p = np.arange(200) < 180, np.linspace(0.99, 0.5, 200)
    found = certify(y, p, floor=number(0.75), target=number(0.5), level=number(0.875))
    assert found == certify(y, p, floor=0.75, target=0.5, level=0.875)
    assert Certificate(**json.loads(json.dumps(found.to_dict()))) == found
    bound = lower_bound(number(1), number(3), level=number(0.875))
    assert bound == lower_bound(1, 3, level=0.875)
    assert upper_bound(number(1), number(3), level=number(0.875)) == upper_bound(1, 3, level=0.875)


@pytest.mark.parametrize(
    "stated", [{"queries": 10**18}, {"level": 1}, {"groups": -1}, {"groups": 201}]
)
def test_what_no_sample_has_is_refused(stated: dict[str, int]) -> None:
    """More labels than anybody has, certainty, and more groups than queries."""
    found = certify(np.arange(200) < 190, np.linspace(0.99, 0.5, 200))
    assert found.threshold is not None
    with pytest.raises(ValueError, match=r"expected|certify no"):
        replace(found, **stated)  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [None, 10, 1])
@pytest.mark.parametrize(("accepted", "right"), [(100, 8), (100, 0), (10, 8), (0, 0), (8, 8)])
def test_a_threshold_that_does_not_follow_from_its_counts_is_refused(
    groups: int | None, accepted: int, right: int
) -> None:
    """So a certificate cannot just be typed in; 8 of 10 and 8 of 8 are not enough for 70%."""
    with pytest.raises(ValueError, match=f"{right} right of {accepted} certify no 70%"):
        Certificate(0.5, 0.7, 0.95, 1000, accepted, right, None, groups=groups)


@pytest.mark.usefixtures("promises_alone")
@pytest.mark.parametrize("target", [0.3, 0.7, 0.95])
def test_what_was_certified_follows_from_its_counts(target: float) -> None:
    """By rows the tail is SciPy's; by groups none that `certify` makes is refused."""
    for n, right in ((30, 29), (400, 390), (100_000, 96_000)):
        expected = binom.sf(right - 1, n, target)
        assert binomial_tail(right, n, target) == pytest.approx(expected, rel=1e-6, abs=1e-300)
    rng, made = np.random.default_rng(0), 0
    for _ in range(60):
        n, size = int(rng.integers(20, 600)), int(rng.integers(1, 12))
        number = rng.integers(0, max(2, n // size), n)
        p = rng.random(n)
        of_group = rng.random(n)[number]
        y = (rng.random(n) < np.clip(0.5 * p + 0.5 * of_group + rng.random() / 2, 0, 1)).astype(int)
        for groups in (None, number, np.arange(n) // 2):
            found = certify(y, p, groups=groups, target=target)  # else it raises
            made += found.threshold is not None
    assert made

"""Samples to label: known probabilities, estimates without bias, and narrower ones."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.label_selection import allocate, choose_rows, weighted_mean
from calibration.metrics.intervals import mean_interval


def world(n: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Confidences and labels; the confidences say too much by .1."""
    rng = np.random.default_rng(seed)
    p = rng.beta(1.5, 1.0, n)
    return p, (rng.random(n) < np.clip(p - 0.1, 0, 1)).astype(int)


@pytest.mark.parametrize("quantity", ["accuracy", "map"])
def test_weights_add_up_to_the_rows(quantity: str) -> None:
    """As many rows as asked for, each once, each stratum whole by its weights."""
    p, _ = world()
    drawn = choose_rows(p, 60, quantity=quantity)  # type: ignore[arg-type]
    assert len(drawn.rows) == len(set(drawn.rows.tolist())) == 60
    assert drawn.weights.sum() == pytest.approx(len(p))
    accepted = p[drawn.rows] >= 0.7
    assert drawn.weights[accepted].sum() == pytest.approx((p >= 0.7).sum())
    alone = choose_rows(p, 1, quantity=quantity)  # type: ignore[arg-type]
    assert alone.weights.tolist() == [len(p)]  # one row stands for all
    again = choose_rows(p, 60, quantity=quantity)  # type: ignore[arg-type]
    assert again.rows.tolist() == drawn.rows.tolist()


def test_labels_go_where_they_tell_most() -> None:
    """For the accuracy above the threshold most lie above it; for the map they lie all over."""
    p, _ = world()
    above = [(p[choose_rows(p, 80, quantity=q).rows] >= 0.7).mean() for q in ("accuracy", "map")]
    assert above[0] >= 0.75
    assert 0.3 < above[1] < 0.6


def test_an_allocation_is_neymans() -> None:
    """In proportions of 3 to 1, two each at least; never more than there are."""
    assert allocate(np.array([3.0, 1.0]), np.array([100, 100]), 40).tolist() == [30, 10]
    assert allocate(np.array([3.0, 1.0]), np.array([5, 100]), 40).tolist() == [5, 35]
    assert allocate(np.array([1.0, 1.0, 1.0]), np.array([9, 8, 7]), 1).tolist() == [1, 0, 0]


def test_the_estimate_is_unbiased_and_narrower_than_at_random() -> None:
    """Of the accuracy above .7, from 80 labels of 2,000 rows, in 300 draws."""
    p, y = world()
    truth, accepted = y[p >= 0.7].mean(), p >= 0.7
    ours, theirs, covered = [], [], 0
    for seed in range(300):
        drawn = choose_rows(p, 80, random_state=seed)
        kept = accepted[drawn.rows]
        found = weighted_mean(y[drawn.rows], drawn.weights, among=kept)
        ours.append(found.mean)
        covered += found.low <= truth <= found.high
        plain = np.random.default_rng(seed).choice(len(p), 80, replace=False)
        theirs.append(y[plain][accepted[plain]].mean())
    assert np.mean(ours) == pytest.approx(truth, abs=0.01)
    assert np.std(ours) < 0.8 * np.std(theirs)
    assert covered >= 279  # 93%


def test_the_interval_counts_that_a_stratum_is_partly_among() -> None:
    """By another confidence than the one that drew, strata lie across the threshold."""
    covered, trials = 0, 300
    for seed in range(trials):
        p, y = world(seed=seed)
        other = p + np.random.default_rng([seed, 1]).normal(0, 0.3, len(p)) >= 0.7
        drawn = choose_rows(p, 200, quantity="map", random_state=seed)
        found = weighted_mean(y[drawn.rows], drawn.weights, among=other[drawn.rows])
        covered += found.low <= y[other].mean() <= found.high
    assert covered >= 279  # 93%


def test_equal_weights_give_the_usual_interval() -> None:
    """A simple random sample is one stratum."""
    y = np.arange(200) < 140
    found = weighted_mean(y, np.full(200, 7.0))
    low, high = mean_interval(y)
    assert found.mean == pytest.approx(0.7)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.006)


def test_rephrasings_count_as_one_question() -> None:
    """Of 20 groups of five equal labels, 95% of the intervals hold the truth."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        y = np.repeat(rng.random(20) < 0.7, 5)
        found = weighted_mean(y, np.ones(100), np.repeat(np.arange(20), 5))
        covered += found.low <= 0.7 <= found.high
    assert covered >= 184  # without groups: about 130


def test_the_mean_of_nothing_has_no_interval() -> None:
    """As with too few groups."""
    assert np.isnan(mean_interval([])).all()


def test_what_cannot_be_drawn_or_weighed_is_refused() -> None:
    """Counts, confidences, thresholds and weights out of range."""
    for arguments in ({"count": 0}, {"count": 4}, {"count": 1, "threshold": 1.0}):
        with pytest.raises(ValueError, match="must lie between"):
            choose_rows([0.1, 0.5, 0.9], **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a weight above 0"):
        weighted_mean([0, 1], [1, 0])
    with pytest.raises(ValueError, match="True for at least one of the labels"):
        weighted_mean([0, 1], [1, 1], among=[False, False])
    assert np.isnan(weighted_mean([1, 1], [1, 2]).low)

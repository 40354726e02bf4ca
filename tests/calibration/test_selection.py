"""Folds and the choice among calibrators, checked by counting and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneGroupOut

from calibration.arrays import group_codes
from calibration.maps import LogisticMap
from calibration.metrics.intervals import grouped_standard_error
from calibration.selection import choose, cross_fit, enough_rows, grouped_folds, one_standard_error


class Constant:
    """The smallest thing that predicts."""

    def __init__(self, value: float) -> None:
        self.value = value

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the value for each row."""
        return np.full(len(X), self.value)


def says(value: float):
    return lambda X, y, groups: Constant(value)


def test_a_group_stays_together_and_folds_are_balanced() -> None:
    """No group is in two folds, and no fold is larger than another by more than one group."""
    groups = np.random.default_rng(0).integers(0, 80, 500)
    folds = grouped_folds(groups, 5, random_state=3)
    assert all(len(set(folds[groups == g])) == 1 for g in groups)
    sizes = np.bincount(folds)
    assert len(sizes) == 5
    assert np.ptp(sizes) <= np.bincount(groups).max()


def test_folds_do_not_depend_on_the_order_of_rows() -> None:
    """The same groups get the same folds, however the rows are shuffled."""
    groups = np.array([f"q{i % 37}" for i in range(100)])
    order = np.random.default_rng(1).permutation(100)
    np.testing.assert_array_equal(
        grouped_folds(groups, 4, random_state=0)[order],
        grouped_folds(groups[order], 4, random_state=0),
    )
    assert (
        grouped_folds(groups, 4, random_state=0) != grouped_folds(groups, 4, random_state=1)
    ).any()


def test_fewer_groups_than_folds() -> None:
    """Three groups make three folds, one each."""
    assert sorted(grouped_folds(["a", "b", "c"], 5, random_state=0)) == [0, 1, 2]
    with pytest.raises(ValueError, match="at least one fold"):
        grouped_folds(["a"], 0, random_state=0)


def test_cross_fit_is_scikit_learns_where_folds_are_groups() -> None:
    """With a fold a group, the predictions are those of a loop over LeaveOneGroupOut."""
    rng = np.random.default_rng(2)
    X, y, groups = rng.normal(size=(40, 2)), rng.integers(0, 2, 40), rng.integers(0, 4, 40)

    def mean(X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> Constant:
        return Constant(float(y.mean()))

    expected = np.empty(40)
    for train, test in LeaveOneGroupOut().split(X, y, groups):
        expected[test] = y[train].mean()
    np.testing.assert_allclose(cross_fit(mean, X, y, groups, folds=4), expected)


def test_cross_fit_needs_two_groups() -> None:
    """One group, or lengths that differ, cannot be cross-fitted."""
    with pytest.raises(ValueError, match="two groups"):
        cross_fit(says(0.5), np.zeros(4), [0, 1, 0, 1], [1, 1, 1, 1])
    with pytest.raises(ValueError, match="X has 3 rows"):
        cross_fit(says(0.5), np.zeros(3), [0, 1])


def test_grouped_standard_error_by_hand() -> None:
    """One row per group: s / sqrt(n). Two equal rows per group: as if each group were one row."""
    values = np.array([1.0, 2.0, 4.0, 9.0])
    plain = values.std(ddof=1) / 2
    assert grouped_standard_error(values, group_codes(None, 4)) == pytest.approx(plain)
    doubled = grouped_standard_error(
        np.repeat(values, 2), group_codes(np.repeat(np.arange(4), 2), 8)
    )
    assert doubled == pytest.approx(plain)
    assert grouped_standard_error(values, group_codes(np.zeros(4), 4)) == float("inf")


def test_one_standard_error_takes_the_simplest_that_is_close() -> None:
    """By hand: the gap of row 1 is 0.01 with error 0.01 or so; that of row 0 is certain."""
    best = np.array([0.5, 0.5, 0.5, 0.5])
    close = best + np.array([0.05, -0.03, 0.05, -0.03])  # mean gap 0.01, error 0.023
    far = best + 0.1  # error 0
    number = group_codes(None, 4)
    assert one_standard_error(np.array([far, close, best]), number) == 1
    assert one_standard_error(np.array([best, close, far]), number) == 0


def test_choose_reports_losses_and_a_reason() -> None:
    """The loss of a constant 0.25 on a quarter of hits is the binary entropy, 0.5623 nats."""
    y = np.array([1, 0, 0, 0] * 25)
    choice = choose({"bad": np.full(100, 0.9), "good": np.full(100, 0.25)}, y)
    assert choice.name == "good"
    assert choice.losses["good"] == pytest.approx(0.5623, abs=1e-4)
    assert choice.losses["bad"] == pytest.approx(-(np.log(0.9) + 3 * np.log(0.1)) / 4)
    assert choice.reason == "good has the lowest grouped cross-validated log loss, 0.5623."


def test_choose_prefers_the_simple_among_equals() -> None:
    """Two candidates that say the same are as good: the first, simpler one is taken."""
    y = np.array([1, 0, 0, 0] * 25)
    same = {"simple": np.full(100, 0.25), "complex": np.full(100, 0.25)}
    assert choose(same, y).name == "simple"


def test_the_reason_names_what_was_not_considered() -> None:
    """A reader sees that a candidate is missing for want of labels."""
    choice = choose({"logistic": np.full(10, 0.5)}, [0, 1] * 5, left_out=["beta", "isotonic"])
    assert choice.reason.endswith("; beta, isotonic not considered on 10 rows.")


def test_isotonic_needs_a_thousand_rows() -> None:
    """Below 1,000 rows isotonic is not considered; logistic always is."""
    assert [enough_rows("isotonic", n) for n in (999, 1000)] == [False, True]
    assert enough_rows("logistic", 0)


def test_choose_refuses_when_nothing_is_left() -> None:
    """No candidate is no choice."""
    with pytest.raises(ValueError, match="one candidate at least"):
        choose({}, np.zeros(10))


def test_a_map_is_a_candidates_result() -> None:
    """What the calibrators leave behind can be cross-fitted as it is."""
    fixed = LogisticMap((1.0,), 0.0, (0.0,), (1.0,))
    out = cross_fit(lambda X, y, groups: fixed, [[0.0], [1.0]], [0, 1])
    np.testing.assert_array_equal(out, fixed.predict([0.0, 1.0]))


def test_the_reason_says_what_the_rows_are_worth() -> None:
    """Where groups make them fewer than they look."""
    p = {"a": np.full(40, 0.5)}
    told = choose(p, np.tile([0, 1], 20), left_out=("beta",), effective_n=12.3)
    assert told.reason.endswith(
        "beta not considered on 40 rows, whose labels are worth those of 12 independent ones."
    )
    assert choose(p, np.tile([0, 1], 20), left_out=("b",), effective_n=40.0).reason.endswith(
        "40 rows."
    )


@pytest.mark.parametrize(
    ("y", "p", "sentence"),
    [
        ([0, 1] * 25, [float("nan")] * 50, "broken: "),
        ([0, 2] * 25, [0.5] * 50, "broken: labels must be 0 or 1, got 2"),
        ([0, 1] * 25, [0.5], "broken: y has shape"),
        ([0, 1] * 25, [2.5] * 50, "broken: "),
    ],
)
def test_a_candidate_that_is_no_probability_is_refused(
    y: list[int], p: list[float], sentence: str
) -> None:
    """A candidate of NaN would win; the message names it."""
    with pytest.raises(ValueError, match=sentence):
        choose({"broken": p}, y, np.arange(50))

"""One result of all measurements: counted by hand, and kept through JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from calibration import metrics
from calibration.reliability import Reliability, comparison, measure


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.beta(2, 2, 600)
    return (rng.random(600) < p).astype(int), p


@pytest.fixture(scope="module")
def result(drawn: tuple[np.ndarray, np.ndarray]) -> Reliability:
    return measure(*drawn, draws=60)


def test_counts_at_the_threshold(drawn: tuple[np.ndarray, np.ndarray], result: Reliability) -> None:
    """Accepted and right are counts; the bound is SciPy's exact one."""
    y, p = drawn
    accepted, right = int((p >= 0.7).sum()), int(y[p >= 0.7].sum())
    assert (result.n, result.accepted, result.right_accepted) == (600, accepted, right)
    assert result.accuracy_accepted == right / accepted
    assert result.coverage == accepted / 600
    exact = binomtest(right, accepted, alternative="greater").proportion_ci(0.95, method="exact")
    assert result.accuracy_accepted_lower95 == pytest.approx(exact.low)


def test_fields_are_the_metrics(drawn: tuple[np.ndarray, np.ndarray], result: Reliability) -> None:
    """A field is the metric of its name; each interval holds its estimate."""
    for name in ("auroc", "brier", "log_loss", "smece", "aurc", "augrc", "naurc", "nauc"):
        assert getattr(result, name) == getattr(metrics, name)(*drawn)
    for name in ("auroc", "brier", "smece"):
        low, high = getattr(result, f"{name}_interval")
        assert low < getattr(result, name) < high
    corp = metrics.corp(*drawn)
    assert (result.miscalibration, result.discrimination) == corp[:2]
    assert (result.band_rows, result.band_confidence, result.band_accuracy) == metrics.band(
        *drawn, 0.7
    )
    rate = result.base_accuracy
    assert result.brier_of_base_rate == pytest.approx(rate * (1 - rate))
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    assert result.log_loss_of_base_rate == pytest.approx(entropy)


def test_json_and_back(result: Reliability) -> None:
    """Through strict JSON a result is equal to itself, and one that lacks a field is refused."""
    d = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert Reliability.from_dict(d) == result
    d.pop("brier")
    with pytest.raises(ValueError, match="a reliability lacks brier; its keys are n, "):
        Reliability.from_dict(d)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ([], "expected a reliability with the keys"),
        ("x", "expected a reliability with the keys"),
        (None, "expected a reliability with the keys"),
        ({"auroc_interval": 0.5}, "expected low and high, got 0.5"),
        ({"auroc": []}, "must be a number"),
        ({"accuracy_accepted": "all"}, "must be a number"),
        ({"extra": []}, "expected extra metrics"),
    ],
)
def test_what_is_no_result_is_refused(result: Reliability, broken: Any, sentence: str) -> None:
    """What is no mapping, and values of another kind."""
    d = {**result.to_dict(), **broken} if isinstance(broken, dict) else broken
    with pytest.raises(ValueError, match=sentence):
        Reliability.from_dict(d)


def test_a_threshold_may_be_infinite() -> None:
    """It accepts nothing, or everything. An array without an axis is a number, NaN is none."""
    y, p = [0, 1, 1], [0.2, 0.7, 0.9]
    nothing, everything = (measure(y, p, threshold=t, draws=5) for t in (math.inf, -math.inf))
    assert (nothing.accepted, nothing.coverage, nothing.band_rows) == (0, 0.0, 0)
    assert (everything.accepted, everything.coverage) == (3, 1.0)
    found = measure(y, p, threshold=np.array(0.7), draws=5)  # type: ignore[arg-type]
    assert (found.threshold, found.accepted) == (0.7, 2)
    for wrong, sentence in ((math.nan, "got NaN"), ("0.7", "got '0.7'")):
        with pytest.raises(ValueError, match=f"threshold must be a number, {sentence}"):
            measure(y, p, threshold=wrong, draws=5)  # type: ignore[arg-type]


def test_one_class_goes_through_json() -> None:
    """What has no value is NaN here, null in JSON, and NaN again."""
    one = measure([1, 1, 1], [0.2, 0.3, 0.4], draws=5)
    d = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert d["auroc"] is None
    assert d["accuracy_accepted"] is None
    again = Reliability.from_dict(d)
    assert math.isnan(again.auroc)
    assert math.isnan(again.auroc_interval[1])
    assert again.accuracy_accepted is None
    assert again.to_dict() == one.to_dict()


def test_a_result_is_frozen(result: Reliability) -> None:
    """A measurement cannot be changed after the fact."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.n = 3  # type: ignore[misc]


def test_table_says_what_was_measured() -> None:
    """Ten rows by hand: 5 of 6 at 0.9 right; its exact lower bound is 41.8%; nobody says 0.95."""
    y = [1, 1, 1, 1, 1, 0, 1, 0, 0, 0]
    p = np.array([0.9] * 6 + [0.2] * 4)
    both = comparison({"loud": p, "shy": p / 2}, y, draws=20)
    head, loud, shy = both.table().splitlines()
    assert head.split("  ")[-1] == "lower bound"
    assert "at >= 0.7" in head
    assert loud.endswith("6  5 (83.3%)        41.8%")
    assert loud.startswith("loud")
    assert shy.split()[-3:] == ["-", "-", "-"]
    assert both["shy"].accepted == 0
    assert list(both.to_dict()) == ["loud", "shy"]
    assert len(both["loud"].table().splitlines()) == 2


def test_table_is_aligned_and_not_too_wide(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    """At most 100 columns, whatever the names; every cell ends where its heading ends."""
    y, p = drawn
    lines = comparison({"x" * 200: p, "raw": p / 2}, y, draws=5).table().splitlines()
    assert {len(line) for line in lines} == {100}
    assert lines[1].split()[0].endswith("…")


def test_groups_widen_the_interval(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    """Rows that belong together say less than as many independent rows."""
    y, p = drawn
    order = np.argsort(y)
    wide = measure(y[order], p[order], groups=np.arange(600) // 20, draws=60).brier_interval
    narrow = measure(y[order], p[order], draws=60).brier_interval
    assert np.ptp(wide) > np.ptp(narrow)


def test_copies_raise_the_floor_of_smece(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    """Five copies of each row are worth no more: smECE, its interval and its floor hardly move."""
    y, p = drawn[0][:120], drawn[1][:120]
    group = np.repeat(np.arange(120), 5)
    alone, copies = measure(y, p, draws=100), measure(y[group], p[group], groups=group, draws=100)
    assert copies.smece == pytest.approx(alone.smece)
    assert copies.smece_interval == pytest.approx(alone.smece_interval, abs=0.01)
    assert copies.smece_floor95 == pytest.approx(alone.smece_floor95, rel=0.15)
    assert measure(y[group], p[group], draws=100).smece_floor95 < 0.7 * copies.smece_floor95


def test_an_error_names_the_way(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    """Among several ways, the one that is not a probability is named."""
    y, p = drawn
    with pytest.raises(ValueError, match="cosine: probabilities must lie"):
        comparison({"cosine": p - 1}, y)


def test_the_lower_bound_is_of_independent_rows() -> None:
    """Ten copies of each row, as a group, leave it where it was; it says how many rows it takes."""
    rng = np.random.default_rng(0)
    p = rng.random(120)
    y = (rng.random(120) < p).astype(int)
    once = measure(y, p)
    again = measure(np.repeat(y, 10), np.repeat(p, 10), groups=np.repeat(np.arange(120), 10))
    assert once.effective_accepted == once.accepted
    assert again.effective_accepted == pytest.approx(once.accepted, rel=0.05)
    assert again.accuracy_accepted_lower95 == pytest.approx(
        once.accuracy_accepted_lower95, abs=0.01
    )
    assert measure([0, 1], [0.1, 0.2]).effective_accepted == 0

"""A correction for each segment of the rows: shrunk when labels are few, nothing when it is new."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from calibration.maps import LogisticMap
from calibration.metrics import log_loss
from calibration.recalibration import Segments, fit_segments

SHIFT = {"easy": 1.0, "hard": -1.0, "rare": -1.0}


def world(counts: dict[str, int], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p, y and segments: the same probability is too low in one segment, too high in another."""
    rng = np.random.default_rng(seed)
    segments = np.repeat(list(counts), list(counts.values()))
    score = 1.5 * rng.normal(size=len(segments))
    truth = expit(score + np.array([SHIFT[segment] for segment in segments]))
    return expit(score), (rng.random(len(segments)) < truth).astype(int), segments


@pytest.fixture(scope="module")
def fitted() -> Segments:
    return fit_segments(*world({"easy": 500, "hard": 500, "rare": 8}, seed=0))[0]


def test_each_segment_is_calibrated_on_new_rows(fitted: Segments) -> None:
    """Mean probability is the share of right ones in both, and the log loss falls by a tenth."""
    old, y, segments = world({"easy": 4000, "hard": 4000}, seed=1)
    p = fitted.apply(old, segments)
    for segment in ("easy", "hard"):
        rows = segments == segment
        assert p[rows].mean() == pytest.approx(y[rows].mean(), abs=0.04)
    assert log_loss(y, p) < 0.9 * log_loss(y, old)


def test_few_rows_move_a_segment_little(fitted: Segments) -> None:
    """Eight rows of a segment give an update between none and that of the many rows like them."""
    few, many = (fitted.updates[segment].intercept for segment in ("rare", "hard"))
    assert many < few < 0.3
    assert abs(few) < 0.8 * abs(many)


def test_copies_move_a_segment_no_further() -> None:
    """Rephrasings that are right together count for what they are worth, in each one by itself."""
    p, y, segments = world({"easy": 40, "hard": 40}, seed=4)
    once, _ = fit_segments(p, y, segments)
    copied = (np.repeat(v, 6) for v in (p, y, segments))
    again, _ = fit_segments(*copied, np.repeat(np.arange(80), 6))
    for segment, update in once.updates.items():
        assert again.updates[segment].intercept == pytest.approx(update.intercept, abs=0.03)


def test_rows_without_a_segment_get_no_update() -> None:
    """They belong together no more than any others do."""
    p, y, segments = world({"easy": 200, "hard": 200}, seed=3)
    fitted, _ = fit_segments(p, y, ["" if segment == "hard" else segment for segment in segments])
    assert list(fitted.updates) == ["easy"]


def test_an_unseen_segment_keeps_its_probability(fitted: Segments) -> None:
    """Nothing was learned of it, so nothing is added; what came in is not written to."""
    old, _, _ = world({"easy": 50}, seed=2)
    before = old.copy()
    np.testing.assert_array_equal(fitted.apply(old, ["new"] * 50), before)
    fitted.apply(old, ["easy"] * 50)
    np.testing.assert_array_equal(old, before)


def test_cross_fitted_updates_have_not_seen_the_row() -> None:
    """Where labels are coin tosses they help nobody: no row knows its own label or its group's."""
    rng = np.random.default_rng(3)
    p, y = np.full(400, 0.5), rng.integers(0, 2, 400)
    segments, groups = np.arange(400) // 4, np.arange(400) // 4  # a segment is a group: never seen
    np.testing.assert_array_equal(fit_segments(p, y, segments, groups)[1], p)
    own = fit_segments(p, y, segments)[0].apply(p, segments)
    assert log_loss(y, own) < log_loss(y, p)


def test_json_keeps_every_bit(fitted: Segments) -> None:
    """Through JSON the updates are equal to themselves; what are none is refused."""
    assert Segments.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted
    wide = LogisticMap((1.0, 1.0), 0.0, (0.0, 0.0), (1.0, 1.0))
    for broken, sentence in (
        ([], "an update per segment"),
        ("x", "an update per segment"),
        ({"a": {"kind": "unheard of"}}, "unknown kind of map"),
        ({"a": wide.to_dict()}, "of one input"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Segments.from_dict(broken)


def test_segments_are_one_a_row(fitted: Segments) -> None:
    """A missing segment is a mistake of the caller."""
    with pytest.raises(ValueError, match="one segment per row"):
        fitted.apply(np.zeros(3), ["easy"])


@pytest.mark.parametrize(
    "y", [np.ma.masked_array([0, 1] * 10, [True] * 10 + [False] * 10), ["0", "1"] * 10]
)
def test_labels_that_are_no_numbers_are_refused(y: Any) -> None:
    """Masked values would be unmasked."""
    with pytest.raises(ValueError, match=r"got 10 masked|got values of type str"):
        fit_segments(np.linspace(0.1, 0.9, 20), y, ["a"] * 20, np.arange(20))

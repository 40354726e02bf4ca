"""A correction for each kind of row: shrunk when labels are few, nothing when a kind is new."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from calibration.by_group import ByGroupMap, fit_by_group
from calibration.fitting import fit_two_stage
from calibration.metrics import log_loss

SHIFT = {"easy": 1.0, "hard": -1.0, "rare": -1.0}


def world(counts: dict[str, int], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, y and kinds: the same scores mean more in one kind than in another."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat(list(counts), list(counts.values()))
    X = rng.normal(size=(len(kinds), 2))
    logit = 1.5 * X[:, 0] + np.array([SHIFT[kind] for kind in kinds])
    return X, (rng.random(len(kinds)) < expit(logit)).astype(int), kinds


@pytest.fixture(scope="module")
def fitted() -> ByGroupMap:
    X, y, kinds = world({"easy": 500, "hard": 500, "rare": 8}, seed=0)
    return fit_by_group(X, y, kinds, C=1.0)


def test_each_kind_is_calibrated_on_new_rows(fitted: ByGroupMap) -> None:
    """Mean probability is the share of right ones in both, and the log loss falls by a tenth."""
    X, y, kinds = world({"easy": 4000, "hard": 4000}, seed=1)
    p = fitted.predict(X, kinds)
    for kind in ("easy", "hard"):
        rows = kinds == kind
        assert p[rows].mean() == pytest.approx(y[rows].mean(), abs=0.04)
    assert log_loss(y, p) < 0.9 * log_loss(y, fitted.pooled.predict(X))


def test_few_rows_move_a_kind_little(fitted: ByGroupMap) -> None:
    """Eight rows of a kind give an update between none and that of the many rows like them."""
    few, many = (fitted.updates[kind].intercept for kind in ("rare", "hard"))
    assert many < few < 0.3
    assert abs(few) < 0.8 * abs(many)


def test_an_unseen_kind_has_the_pooled_probability(fitted: ByGroupMap) -> None:
    """Nothing was learned of it, so nothing is added."""
    X, y, _ = world({"easy": 500, "hard": 500, "rare": 8}, seed=0)
    pooled = fit_two_stage(X, y, C=1.0)[0]
    np.testing.assert_array_equal(fitted.predict(X, ["new"] * len(X)), pooled.predict(X))


def test_json_keeps_every_bit(fitted: ByGroupMap) -> None:
    """Through JSON the map is equal to itself; what is no such map is refused."""
    again = ByGroupMap.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    for broken, sentence in (
        ({"kind": "logistic"}, "kind by-group"),
        ({"kind": "by-group", "pooled": {}}, "pooled and updates"),
        ({**fitted.to_dict(), "updates": {"a": fitted.pooled.to_dict()}}, "of one input"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ByGroupMap.from_dict(broken)


def test_kinds_are_one_a_row(fitted: ByGroupMap) -> None:
    """A missing kind is a mistake of the caller."""
    with pytest.raises(ValueError, match="one kind a row"):
        fitted.predict(np.zeros((3, 2)), ["easy"])

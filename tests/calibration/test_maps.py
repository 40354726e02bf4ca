"""Maps: JSON and back to the last bit, refusals, and rows that do not depend on each other."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from known_world import world
from scipy.special import expit

import calibration
from calibration.arrays import logit, sigmoid
from calibration.calibrators import (
    LogisticCalibrator,
    TwoStageCalibrator,
)
from calibration.maps import BetaMap, IsotonicMap, LogisticMap, TwoStageMap, map_from_dict

MAPS = [
    LogisticMap((0.1, -1 / 3), 1e-17, (0.2, 1e300), (1.5, 0.1)),
    IsotonicMap((-1.0, 0.1, 2 / 3), (0.0, 0.3, 1.0), 0.1, 3.0),
    BetaMap(1 / 3, 0.0, -2.0),
    TwoStageMap(LogisticMap((1.0,), 0.0, (0.0,), (1.0,)), IsotonicMap((0.5,), (0.7,))),
    TwoStageMap(
        LogisticMap((1.0, 2.0), 0.0, (0.0, 0.0), (1.0, 1.0)),
        LogisticMap((0.9,), -0.1, (0.1,), (2.0,)),
        LogisticMap((0.8,), 0.2, (0.0,), (1.0,)),
    ),
]
LOGISTIC, ISOTONIC = MAPS[0].to_dict(), MAPS[1].to_dict()
TWO_STAGE = MAPS[-1].to_dict()


def test_the_import_is_light() -> None:
    """Production imports `calibration` and its maps without any heavy library."""
    code = (
        "import sys, calibration, calibration.maps, calibration.metrics, rerank.storage.folder;"
        "print([m for m in ('sklearn', 'scipy', 'mlflow', 'matplotlib', 'pandas')"
        " if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_all_names_exist() -> None:
    """What `calibration` says it exports is there, and named once."""
    assert len(calibration.__all__) == len(set(calibration.__all__))
    assert all(hasattr(calibration, name) for name in calibration.__all__)


@pytest.mark.parametrize("original", MAPS, ids=lambda m: m.to_dict()["kind"])
def test_json_keeps_every_bit(original: LogisticMap) -> None:
    """A map that went through JSON is equal to the one that was saved."""
    assert map_from_dict(json.loads(json.dumps(original.to_dict()))) == original


@pytest.mark.parametrize(
    ("d", "sentence"),
    [
        ({"kind": "spline"}, "unknown kind of map 'spline'"),
        ({}, "unknown kind of map None"),
        ([1], "expected a map as an object"),
        ({"kind": "isotonic", "x": [0]}, "lacks mean, scale, y"),
        ({**ISOTONIC, "scale": 0.0}, "scale must be positive"),
        ({"kind": "beta", "a": -1.0, "b": 1.0, "c": 0.0}, "must not be negative"),
        ({**LOGISTIC, "colour": 1}, "has the unknown colour"),
        ({**LOGISTIC, "coef": [1.0]}, "one number a feature of each, got .*'mean': 2"),
        ({**LOGISTIC, "intercept": float("nan")}, "finite"),
        ({**LOGISTIC, "mean": "ab"}, "mean must be a list of numbers"),
        ({**LOGISTIC, "coef": "12"}, "coef must be a list of numbers, got '12'"),
        ({**LOGISTIC, "coef": ["1", 2.0]}, "coef must be a number, got '1'"),
        ({**LOGISTIC, "coef": {"1": 2, "3": 4}}, "coef must be a list of numbers"),
        ({**LOGISTIC, "intercept": "0.5"}, "intercept must be a number, got '0.5'"),
        ({**LOGISTIC, "intercept": True}, "intercept must be a number, got 'True'"),
        ({**LOGISTIC, "intercept": None}, "intercept must be a number"),
        ({**LOGISTIC, "intercept": 10**400}, "intercept must be finite"),
        ({**LOGISTIC, "coef": [10**400, 1]}, "coef must be finite"),
        ({**LOGISTIC, "low": 3}, "low must be a list of numbers"),
        ({**LOGISTIC, "low": None}, "low must be a list of numbers"),
        ({**LOGISTIC, "high": [1.0, 2.0]}, "'low': 0, 'high': 2"),
        ({**LOGISTIC, "coef": [1e308, -1e308]}, "coef is too large for scale"),
        ({**ISOTONIC, "mean": "0"}, "mean must be a number"),
        ({"kind": "beta", "a": True, "b": 1.0, "c": 0.0}, "a must be a number"),
        ({**LOGISTIC, "scale": [1.0, 0.0]}, "scale must be positive"),
        ({**ISOTONIC, "y": [0.5]}, "as long"),
        ({**ISOTONIC, "x": [1, 0], "y": [0.1, 0.5]}, "rise strictly"),
        ({**ISOTONIC, "x": [0, 1], "y": [0.5, 0.1]}, "never fall"),
        ({**ISOTONIC, "x": [], "y": []}, "at least one number"),
        ({**TWO_STAGE, "first": ISOTONIC}, "must be logistic"),
        ({**TWO_STAGE, "then": LOGISTIC}, "second of a two-stage map takes one logit"),
        ({**TWO_STAGE, "update": LOGISTIC}, "update of a two-stage map takes one logit"),
        ({**TWO_STAGE, "update": ISOTONIC}, "update of a two-stage map must be logistic"),
    ],
)
def test_a_broken_map_is_refused(d: dict, sentence: str) -> None:
    """A dictionary that is no map is refused with a sentence that says what is wrong."""
    with pytest.raises(ValueError, match=sentence):
        map_from_dict(d)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (np.zeros((3, 5)), r"shape \(n, 2\), got shape \(3, 5\)"),
        (np.zeros(2), r"shape \(n, 2\)"),
        ([[0.0, np.nan]], r"got nan at position \(0, 1\)"),
    ],
)
def test_a_map_refuses_the_wrong_input(X: np.ndarray, sentence: str) -> None:
    """A map says what came and what it expected."""
    with pytest.raises(ValueError, match=sentence):
        MAPS[0].predict(X)


def test_sigmoid_and_logit_stay_finite() -> None:
    """The sigmoid is SciPy's to the last digits, and does not overflow."""
    z = np.array([-1e4, -700.0, -3.0, 0.0, 2.0, 700.0, 1e4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(sigmoid(z), expit(z), rtol=1e-14)
        np.testing.assert_allclose(logit(sigmoid(z[2:5])), z[2:5], rtol=1e-12, atol=1e-15)


def test_contributions_add_up_to_the_logit() -> None:
    """The effect of the features and the intercept are the logit, nothing else is."""
    X, y, _ = world(200)
    fitted = LogisticCalibrator().fit(X, y).map_
    np.testing.assert_allclose(
        fitted.contributions(X).sum(axis=1) + fitted.intercept, fitted.logit(X), rtol=1e-12
    )


def test_an_update_moves_the_log_odds_of_the_map() -> None:
    """The updated map is the update of the old one's log odds, and its effects scale with it."""
    X, y, _ = world(200)
    old = TwoStageCalibrator(C=1.0).fit(X, y).map_
    new = TwoStageMap(old.first, old.second, LogisticMap((0.5,), -1.0, (0.0,), (1.0,)))
    np.testing.assert_allclose(new.predict(X), expit(0.5 * logit(old.predict(X)) - 1), rtol=1e-9)
    np.testing.assert_allclose(new.contributions(X), 0.5 * old.contributions(X))


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """One row alone, in a batch, and in a column-major batch give the same bits."""
    X, y, _ = world(300, width=19)
    fitted = TwoStageCalibrator(C=1.0).fit(X, y).map_
    alone = np.concatenate([fitted.predict(row[None]) for row in X])
    np.testing.assert_array_equal(fitted.predict(X), alone)
    np.testing.assert_array_equal(fitted.predict(np.asfortranarray(X)), alone)


def test_one_column_may_come_flat_and_none_may_come() -> None:
    """(n,) equals (n, 1) where the map takes one feature, and no row gives no probability."""
    one = LogisticMap((2.0,), 0.5, (1.0,), (3.0,))
    np.testing.assert_array_equal(one.predict([1.0, 2.0]), one.predict([[1.0], [2.0]]))
    assert MAPS[0].predict(np.zeros((0, 2))).shape == (0,)


def test_large_logits_that_are_finite_are_taken() -> None:
    """Whose sum is not finite: no warning, and probabilities."""
    huge = LogisticMap((1.0,), 0.0, (0.0,), (1.0,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert huge.predict([1.5e308, 1.5e308, -1.5e308]).tolist() == [1.0, 1.0, 0.0]


def test_features_that_overflow_are_refused() -> None:
    """Two huge features whose sum is not a number give a sentence and not NaN."""
    fitted = LogisticMap((1e200, -1e200), 0.0, (0.0, 0.0), (1.0, 1.0))
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match="too large"):
        fitted.predict([[1e200, 1e200]])
    clipped = LogisticMap((1e200, -1e200), 0.0, (0.0, 0.0), (1.0, 1.0), (-1, -1), (1, 1))
    assert clipped.predict([[1e200, 1e200]]) == [0.5]


def test_the_most_that_a_map_gives_follows_its_update() -> None:
    """What an update lifts, it lifts the bound of too: no row exceeds it, and one reaches it."""
    first = LogisticMap((1.0,), 0.0, (0.0,), (1.0,))
    bounded = LogisticMap((1.0,), 0.0, (0.0,), (1.0,), (-2.0,), (2.0,))
    for update in (None, LogisticMap((1.0,), 0.5, (0.0,), (1.0,))):
        made = TwoStageMap(first, bounded, update)
        highest = made.predict(np.linspace(-9, 9, 50)[:, None]).max()
        assert made.max_probability == pytest.approx(highest)
    assert (
        TwoStageMap(first, first, LogisticMap((1.0,), 0.5, (0.0,), (1.0,))).max_probability == 1.0
    )

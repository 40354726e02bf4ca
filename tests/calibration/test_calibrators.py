"""Calibrators against scikit-learn and SciPy."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from known_world import world
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from calibration.calibrators import (
    BetaCalibrator,
    IsotonicCalibrator,
    LogisticCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    TwoStageCalibrator,
)
from calibration.fitting import (
    Folds,
    Rows,
    cross_fit_two_stage,
    fit_logistic,
    fit_two_stage,
    fit_update,
)
from calibration.maps import TILT, BetaMap, IsotonicMap, map_from_dict
from calibration.metrics import auroc, log_loss, smece, smece_floor
from calibration.score_fitting import SCORE_FITS, fit_beta, fit_temperature
from calibration.selection import grouped_folds


def test_logistic_is_scikit_learns() -> None:
    """Through JSON, numpy alone gives what scikit-learn's pipeline gives."""
    X, y, _ = world(400)
    X = X * [1, 100, 1e-3, 1] + [0, 5, 0, -2]
    theirs = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.3, solver="newton-cholesky", tol=1e-10)
    )
    expected = theirs.fit(X, y).predict_proba(X)
    ours = LogisticCalibrator(C=0.3).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), expected, rtol=1e-9)
    again = map_from_dict(json.loads(json.dumps(ours.map_.to_dict())))
    np.testing.assert_array_equal(again.predict(X), ours.predict_proba(X)[:, 1])


def test_a_constant_column_does_nothing() -> None:
    """A feature that never changed in training has no weight, whatever it is in production."""
    X, y, _ = world(200)
    X[:, 2] = 7.1
    fitted = LogisticCalibrator().fit(X, y).map_
    assert fitted.coef[2] == 0
    moved = X.copy()
    moved[:, 2] = 1e6
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict(moved))


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_platt_is_the_minimum_of_platts_loss(shift: float) -> None:
    """Newton's answer is where SciPy's minimiser ends, on targets written down from the paper."""
    X, y, _ = world(150)
    s = X[:, 0] * 3
    target = np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / ((1 - y).sum() + 2))

    def loss(w: np.ndarray) -> float:
        z = w[0] * s + w[1]
        return float((np.logaddexp(0, z) - target * z).sum())

    a, b = minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x
    fitted = PlattCalibrator().fit(s + shift, y)
    np.testing.assert_allclose(fitted.predict_proba(s + shift)[:, 1], expit(a * s + b), atol=1e-6)


def test_platt_stays_finite_where_classes_are_separated() -> None:
    """Two separated classes get Platt's smoothed targets, 1/4 and 3/4 of two each, not 0 and 1."""
    p = PlattCalibrator().fit([-1.0, -1.0, 1.0, 1.0], [0, 0, 1, 1]).predict_proba([-1.0, 1.0])
    np.testing.assert_allclose(p[:, 1], [0.25, 0.75], atol=1e-6)


def test_isotonic_is_scikit_learns_between_the_ends() -> None:
    """Away from exact 0 and 1 the knots give scikit-learn's fit, but for a tilt."""
    X, y, _ = world(600)
    s, probe = X[:, 0], np.linspace(-3, 3, 999)
    theirs = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(s, y)
    ours = IsotonicCalibrator().fit(s, y)
    inner = np.unique(theirs.predict(s)[(theirs.predict(s) > 0) & (theirs.predict(s) < 1)])
    steps = theirs.predict(probe)
    kept = (steps >= inner[0]) & (steps <= inner[-1])
    assert kept.sum() > 200
    low, middle, high = np.quantile(s, [0.25, 0.5, 0.75], method="inverted_cdf")
    expected = (1 - TILT) * steps + TILT * expit(1.349 * (probe - middle) / (high - low))
    np.testing.assert_allclose(ours.predict_proba(probe)[kept, 1], expected[kept], rtol=1e-14)
    assert ours.predict_proba(probe)[:, 1].min() > 0
    assert ours.predict_proba(probe)[:, 1].max() < 1


def test_isotonic_ends_are_laplaces() -> None:
    """By hand: blocks of 2 misses, a half, and 3 hits say 1/(2+2), 1/2 and (3+1)/(3+2)."""
    fitted = IsotonicCalibrator().fit([0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1, 1])
    np.testing.assert_allclose(
        fitted.predict_proba(np.arange(7.0))[:, 1], [0.25, 0.25, 0.5, 0.5, 0.8, 0.8, 0.8], atol=TILT
    )


def test_isotonic_keeps_the_order_of_the_scores() -> None:
    """No two scores are tied, within a flat run or beyond the ends: the AUROC is the scores'."""
    X, y, _ = world(300)
    probe = np.linspace(-8, 8, 500)
    fitted = IsotonicCalibrator().fit(X[:, 0], y)
    assert (np.diff(fitted.predict_proba(probe)[:, 1]) > 0).all()
    p = fitted.predict_proba(X[:, 0])[:, 1]
    assert auroc(y, p) == auroc(y, expit(X[:, 0]))


def test_isotonic_is_never_sure() -> None:
    """Knots of exact 0 and 1, and scores as far out as there are: never exactly 0 or 1."""
    fitted = IsotonicMap((-1.0, 1.0), (0.0, 1.0))
    far = np.array([1.0, 40.0, 800.0, 1e9, 1e18, 1e300])
    p = fitted.predict(np.append(-far, far))
    assert p.min() > 0
    assert p.max() < 1


def test_isotonic_tells_scores_apart_far_beyond_its_knots() -> None:
    """A thousand scales out, where a sigmoid has long been 1, a higher score is still higher."""
    fitted = IsotonicMap((-1.0, 1.0), (0.1, 0.9))
    assert (np.diff(fitted.predict(np.arange(-1000.0, 1000.0, 0.25))) > 0).all()
    assert (np.diff(fitted.predict(np.logspace(1, 6, 200))) > 0).all()
    near = fitted.predict(np.array([4.999999, 5.0, 5.000001]))
    np.testing.assert_allclose(near, near[1], rtol=1e-8)


def test_one_outlier_ties_nothing() -> None:
    """Beside one score of 1e18, the other 99 are still told apart."""
    X, y, _ = world(100)
    s = np.append(X[1:, 0], 1e18)
    p = IsotonicCalibrator().fit(s, y).predict_proba(np.sort(s))[:, 1]
    assert len(np.unique(p)) == 100


def test_isotonic_end_never_undercuts_its_neighbour() -> None:
    """By hand: a lone top hit (Laplace 2/3) above a block of 9 in 10 says 0.9."""
    y = [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1]
    fitted = IsotonicCalibrator().fit(np.arange(13.0), y)
    p = fitted.predict_proba(np.arange(13.0))[:, 1]
    assert p[-1] == pytest.approx(0.9, abs=TILT)
    assert (np.diff(p) >= 0).all()


def test_temperature_is_the_minimum_of_its_loss() -> None:
    """One number, where SciPy's minimiser of the same loss ends; it does not move the middle."""
    X, y, _ = world(300)
    s = 3 * X[:, 0]
    target = np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / ((1 - y).sum() + 2))
    best = minimize(lambda w: (np.logaddexp(0, w[0] * s) - target * w[0] * s).sum(), [0.1]).x[0]
    assert fit_temperature(s, y).coef[0] == pytest.approx(best, abs=1e-4)
    assert fit_temperature(s, y).predict([0.0])[0] == 0.5


def test_beta_is_betacals() -> None:
    """Betacal 1.1.0 gives these numbers on these 20,000 rows; ours smooths the labels a little."""
    rng = np.random.default_rng(0)
    s = 2 * rng.normal(size=20_000)
    y = rng.random(20_000) < BetaMap(0.8, 1.5, 0.8).predict(s)
    fitted = fit_beta(s, y)
    assert (fitted.a, fitted.b, fitted.c) == pytest.approx((0.84794, 1.41306, 0.91456), abs=3e-3)


def test_beta_with_equal_weights_is_the_logistic_map() -> None:
    """A = b is a logistic map of slope a: (s / (1 - s))^a."""
    z = np.linspace(-5, 5, 11)
    np.testing.assert_allclose(BetaMap(0.7, 0.7, 0.2).predict(z), expit(0.7 * z + 0.2))


def test_an_update_moves_with_the_labels() -> None:
    """No label leaves the map; a thousand bring it to where the truth is; ten lie between."""
    rng = np.random.default_rng(0)
    s = 2 * rng.normal(size=1000)
    y = rng.random(1000) < expit(0.8 * s - 1)
    moves = [fit_update(s[:n], y[:n]).intercept for n in (10, 100, 1000)]
    assert moves[2] == pytest.approx(-1, abs=0.2)
    assert -1 < moves[2] < moves[0] < 0


@pytest.mark.parametrize("shift", [0.0, -1.0])
def test_an_update_is_no_worse_on_average(shift: float) -> None:
    """Over 200 worlds, with 50 labels: where nothing has moved it costs less than a hundredth of a
    nat, and where accuracy has fallen it gains several.
    """
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(200):
        s, new = 1.5 * rng.normal(size=50), 1.5 * rng.normal(size=2000)
        fitted = fit_update(s, rng.random(50) < expit(s + shift))
        y = rng.random(2000) < expit(new + shift)
        gains.append(log_loss(y, expit(new)) - log_loss(y, fitted.predict(new)))
    assert np.mean(gains) > (-0.01 if shift == 0 else 0.05)


def test_all_second_stages_share_the_first() -> None:
    """Out of fold, each is what a two-stage fit without the fold's rows says of them."""
    X, y, _ = world(200)
    groups = np.arange(200) // 2
    found = cross_fit_two_stage(["logistic", "beta"], Rows.of(X, y, groups), Folds(3, 1.0))
    fold = grouped_folds(groups, 3, random_state=0)
    for second_stage, p in found.items():
        for k in range(3):
            held = fold == k
            fitted = fit_two_stage(
                X[~held], y[~held], groups[~held], second_stage=second_stage, C=1.0, folds=3
            )[0]
            np.testing.assert_allclose(p[held], fitted.predict(X[held]))


CALIBRATORS = [
    LogisticCalibrator(),
    PlattCalibrator(),
    TemperatureCalibrator(),
    BetaCalibrator(),
    IsotonicCalibrator(),
    *(TwoStageCalibrator(second_stage=second_stage) for second_stage in SCORE_FITS),
]


@pytest.mark.parametrize("estimator", [c for c in CALIBRATORS if "enn" not in repr(c)], ids=repr)
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_gives_the_smoothed_base_rate(estimator: LogisticCalibrator, label: int) -> None:
    """Ten labels of one class say 1/12 or 11/12 everywhere: Laplace's rule, never certainty."""
    X = np.random.default_rng(0).normal(size=(10, 1))
    p = clone(estimator).fit(X, np.full(10, label)).predict_proba(X * 9)
    np.testing.assert_allclose(p[:, 1], 11 / 12 if label else 1 / 12, atol=TILT)


@pytest.mark.parametrize("estimator", CALIBRATORS, ids=repr)
@pytest.mark.parametrize("y", [[0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [1, 0, 1]])
def test_few_rows_do_not_crash(estimator: LogisticCalibrator, y: list[int]) -> None:
    """Few rows, a class that is missing from most folds: a probability all the same."""
    X = np.random.default_rng(1).normal(size=(len(y), 1))
    p = clone(estimator).fit(X, y).predict_proba(X)
    assert p.shape == (len(y), 2)
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_wide_features_and_one_group_do_not_crash() -> None:
    """More features than rows is ridge's work; one group cannot be cross-fitted: a constant."""
    X, y, _ = world(10, width=30)
    assert TwoStageCalibrator().fit(X, y).predict_proba(X).shape == (10, 2)
    one = TwoStageCalibrator().fit(X, y, groups=np.zeros(10)).predict_proba(X)
    assert np.ptp(one) == pytest.approx(np.ptp(one[0]))


@pytest.mark.parametrize("second_stage", SCORE_FITS)
def test_two_stages_are_calibrated_on_new_rows(second_stage: str) -> None:
    """On rows never seen, the smECE is what an exactly calibrated confidence would show."""
    X, y, _ = world(1500, seed=1)
    fitted = TwoStageCalibrator(second_stage=second_stage).fit(X, y)
    new, labels, truth = world(3000, seed=2)
    p = fitted.predict_proba(new)[:, 1]
    assert smece(labels, p) < smece_floor(p, draws=30)[1] + 0.02
    assert np.abs(p - truth).mean() < 0.05


def test_noise_gives_the_base_rate() -> None:
    """Features that say nothing must not spread the confidence, nor turn it around."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(400, 20)), (rng.random(400) < 0.3).astype(int)
    p = TwoStageCalibrator().fit(X, y).predict_proba(X)[:, 1]
    assert p.std() < 0.05
    assert p.mean() == pytest.approx(y.mean(), abs=0.03)


def test_out_of_fold_logits_respect_groups() -> None:
    """Twins in one group: the out-of-fold logits must not know a twin's label."""
    rng = np.random.default_rng(4)
    X, y = np.repeat(rng.normal(size=(60, 40)), 5, axis=0), np.repeat(rng.integers(0, 2, 60), 5)
    groups = np.repeat(np.arange(60), 5)
    apart = fit_two_stage(X, y, groups, C=10.0)[2]
    leaky = fit_two_stage(X, y, C=10.0)[2]
    assert np.corrcoef(apart, y)[0, 1] < 0.3 < np.corrcoef(leaky, y)[0, 1]


class LastColumn:
    """Lets a calibrator of one score take a matrix, which is what scikit-learn's checks give."""

    _scores = staticmethod(lambda x: -x[:, -1])


class MatrixPlatt(LastColumn, PlattCalibrator):
    """Platt's, of a matrix."""


class MatrixTemperature(LastColumn, TemperatureCalibrator):
    """The temperature, of a matrix."""


class MatrixBeta(LastColumn, BetaCalibrator):
    """The beta map, of a matrix."""


class MatrixIsotonic(LastColumn, IsotonicCalibrator):
    """The isotonic map, of a matrix."""


def one_score_may_be_a_vector(estimator: LogisticCalibrator) -> dict[str, str]:
    """As of scikit-learn's `IsotonicRegression`, so these two checks of a refusal do not apply."""
    names = ("check_fit1d", "check_fit2d_predict1d") if isinstance(estimator, LastColumn) else ()
    return dict.fromkeys(names, "scores (n,) are taken")


@parametrize_with_checks(
    [
        LogisticCalibrator(),
        TwoStageCalibrator(C=1.0),
        MatrixPlatt(),
        MatrixTemperature(),
        MatrixBeta(),
        MatrixIsotonic(),
    ],
    expected_failed_checks=one_score_may_be_a_vector,
)
def test_scikit_learns_own_checks(estimator: LogisticCalibrator, check: Callable) -> None:
    """Every check that scikit-learn has for a binary classifier passes, of `sample_weight` too."""
    check(estimator)


@pytest.mark.parametrize("estimator", CALIBRATORS[:5], ids=repr)
def test_a_weight_is_that_many_rows(estimator: LogisticCalibrator) -> None:
    """A row of weight 2 counts as two rows, one of weight 0 as none."""
    X, y, _ = world(80, width=1)
    w = np.random.default_rng(0).integers(0, 4, size=len(y))
    weighted = clone(estimator).fit(X, y, sample_weight=w)
    repeated = clone(estimator).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)
    with pytest.raises(ValueError, match="sample_weight per row"):
        clone(estimator).fit(X, y, sample_weight=[1.0])


@pytest.mark.parametrize("estimator", CALIBRATORS, ids=repr)
def test_labels_may_be_of_any_two_classes(estimator: LogisticCalibrator) -> None:
    """The greater class is the event, whatever the two are called; three are refused."""
    X, y, _ = world(80, width=1)
    X = X if isinstance(estimator, TwoStageCalibrator | LogisticCalibrator) else X[:, 0]
    named = clone(estimator).fit(X, np.array(["no", "yes"])[y])
    np.testing.assert_array_equal(
        named.predict_proba(X), clone(estimator).fit(X, y).predict_proba(X)
    )
    assert set(named.predict(X)) <= {"no", "yes"}
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        clone(estimator).fit(X, np.arange(80) % 3)


@pytest.mark.parametrize("estimator", CALIBRATORS, ids=repr)
def test_what_is_masked_is_refused(estimator: LogisticCalibrator) -> None:
    """In features and in labels: scikit-learn would unmask it."""
    X, y, _ = world(80, width=1)
    X = X if isinstance(estimator, TwoStageCalibrator | LogisticCalibrator) else X[:, 0]
    first = np.arange(80) < 1
    with pytest.raises(ValueError, match="got 1 masked"):
        clone(estimator).fit(np.ma.masked_array(X, first.reshape(X.shape)), y)
    with pytest.raises(ValueError, match="got 1 masked"):
        clone(estimator).fit(X, np.ma.masked_array(y, first))


@pytest.mark.parametrize("estimator", CALIBRATORS, ids=repr)
@pytest.mark.parametrize("kind", [np.str_, object, "M8[s]"])
def test_features_that_are_no_numbers_are_refused(
    estimator: LogisticCalibrator, kind: npt.DTypeLike
) -> None:
    """Text of numbers, and dates: in a fit and in a prediction."""
    X, y, _ = world(80, width=1)
    X = X if isinstance(estimator, TwoStageCalibrator | LogisticCalibrator) else X[:, 0]
    wrong = X.astype(np.int64).astype(kind) if kind == "M8[s]" else X.astype(np.str_).astype(kind)
    with pytest.raises(ValueError, match="expected real numbers, got"):
        clone(estimator).fit(wrong, y)
    with pytest.raises(ValueError, match="expected real numbers, got"):
        clone(estimator).fit(X, y).predict_proba(wrong)


def test_scikit_learns_manners() -> None:
    """Options survive a clone, fit returns self, unfitted raises, labels come in classes_."""
    from sklearn.exceptions import NotFittedError

    estimator = TwoStageCalibrator(second_stage="isotonic", folds=3, C=0.2, random_state=7)
    assert clone(estimator).get_params() == estimator.get_params()
    X, y, _ = world(60)
    with pytest.raises(NotFittedError):
        estimator.predict_proba(X)
    assert estimator.fit(X, y) is estimator
    assert (estimator.C_, estimator.n_features_in_) == (0.2, 4)
    assert set(estimator.predict(X)) <= set(estimator.classes_)
    assert 0.4 < estimator.score(X, y) <= 1


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([0, 1, 2], "0 or 1, got"),
        ([0, 1], "one label per row"),
        ([[0], [1], [1]], "one label per row"),
    ],
)
def test_labels_are_checked(y: list, sentence: str) -> None:
    """The functions take one 0 or 1 a row, and nothing else."""
    with pytest.raises(ValueError, match=sentence):
        fit_logistic(np.zeros((3, 2)), y)
    with pytest.raises(ValueError, match=sentence):
        fit_beta(np.zeros(3), y)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"second_stage": "spline"}, "second_stage must be"),
        ({"folds": 1}, "two folds"),
        ({"C": 0.0}, "positive"),
    ],
)
def test_options_are_checked(options: dict, sentence: str) -> None:
    """An option out of range is named."""
    X, y, _ = world(20)
    with pytest.raises(ValueError, match=sentence):
        TwoStageCalibrator(**options).fit(X, y)


def test_few_labels_teach_something_where_features_tell() -> None:
    """The intercepts of the folds' maps run against the held-out labels: they are put aside."""
    rng, constant = np.random.default_rng(7), 0
    for _ in range(12):
        signal = rng.normal(size=(40, 1))
        x = 0.8 * signal + 0.6 * rng.normal(size=(40, 20))
        y = (rng.random(40) < expit(signal[:, 0])).astype(np.int64)
        constant += np.ptp(fit_two_stage(x, y)[0].predict(x)) == 0
    assert constant <= 2

"""Maps fitted around others, against SciPy's minimiser and in worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from calibration.fitting import (
    INTERCEPT_SPREAD,
    OF_ANOTHER_SET,
    OLD_EFFECTIVE_N,
    SLOPE_SPREAD,
    Folds,
    Rows,
    cross_fit_two_stage,
    fit_logistic,
    fit_shrunk,
    fit_two_stage,
    fit_update,
    update_of,
)
from calibration.maps import LogisticMap
from calibration.metrics import log_loss
from calibration.metrics.scores import row_losses

OLD = LogisticMap((0.8, -0.5, 0.0), -0.3, (1.0, 0.0, 2.0), (2.0, 1.0, 1.0), (-5, -3, 2), (7, 3, 2))


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features in the range of `OLD`, and labels of a map with another slope and another step."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(1, 2, n), rng.normal(0, 1, n), np.full(n, 2.0)])
    z = OLD.logit(x)
    labels = rng.random(n) < expit(0.7 * z + 0.8 + 0.2 * OLD.standardised(x)[:, 1])
    return x, labels.astype(int)


def test_the_fit_is_the_minimum_that_scipy_finds() -> None:
    """Likelihood and three Gaussian priors, minimised by another method, give the same map."""
    x, y = rows(80)
    spreads, c = (SLOPE_SPREAD, OF_ANOTHER_SET), 0.2
    fitted = fit_shrunk(OLD, x, y, C=c)
    z, steps = OLD.logit(x), OLD.standardised(x)

    def cost(w: np.ndarray) -> float:
        odds = w[0] * z + w[1] + steps @ w[2:]
        prior = ((w[0] - 1) / spreads[0]) ** 2 + (w[1] / spreads[1]) ** 2 + (w[2:] ** 2).sum() / c
        return float((np.logaddexp(0, odds) - y * odds).sum() + prior / 2)

    found = minimize(cost, np.array([1.0, 0, 0, 0, 0]), tol=1e-12).x
    odds = found[0] * z + found[1] + steps @ found[2:]
    np.testing.assert_allclose(fitted.logit(x), odds, atol=1e-4)


def test_no_weight_turns_around_and_the_fit_is_still_the_minimum() -> None:
    """Labels that turn the second weight around leave it at 0; SciPy's SLSQP finds the same map."""
    x, y = rows(200)
    y = (np.random.default_rng(1).random(200) < expit(1.5 * OLD.standardised(x)[:, 1])).astype(int)
    free = fit_shrunk(OLD, x, y, C=1.0)
    assert free.coef[1] > 0 > OLD.coef[1]
    fitted = fit_shrunk(OLD, x, y, C=1.0, keep_signs=True)
    assert fitted.coef[1] == 0
    assert fitted.coef[0] >= 0
    z, steps = OLD.logit(x), OLD.standardised(x)
    old = np.array(OLD.coef)

    def cost(w: np.ndarray) -> float:
        odds = w[0] * z + w[1] + steps @ w[2:]
        prior = ((w[0] - 1) / 0.25) ** 2 + w[1] ** 2 + (w[2:] ** 2).sum()
        return float((np.logaddexp(0, odds) - y * odds).sum() + prior / 2)

    kept = [{"type": "ineq", "fun": lambda w: np.sign(old[:2]) * (w[0] * old + w[2:])[:2]}]
    found = minimize(
        cost, np.array([1.0, 0, 0, 0, 0]), method="SLSQP", constraints=kept, tol=1e-12
    ).x
    odds = found[0] * z + found[1] + steps @ found[2:]
    np.testing.assert_allclose(fitted.logit(x), odds, atol=1e-3)


def test_signs_are_kept_at_no_cost_where_no_weight_would_turn_around() -> None:
    """Then the fit is the free one, to the bit."""
    x, y = rows(300)
    assert fit_shrunk(OLD, x, y, C=0.2, keep_signs=True) == fit_shrunk(OLD, x, y, C=0.2)


@pytest.mark.parametrize(("n", "turned"), [(60, False), (3000, True)])
def test_a_weight_turns_around_only_on_very_strong_evidence(n: int, turned: bool) -> None:
    """Where it has truly turned, few labels leave it at 0 and many turn it."""
    x, _ = rows(n)
    truth = 0.8 * OLD.standardised(x)[:, 0] + 0.4 * OLD.standardised(x)[:, 1]
    y = (np.random.default_rng(2).random(n) < expit(truth)).astype(int)
    fitted = fit_two_stage(x, y, reference=OLD)[0].first
    assert (fitted.coef[1] > 0) == turned


def test_an_update_is_the_case_without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit_update` of a map's logits is `fit_shrunk` to that map where no step may be taken."""
    x, y = rows(60)
    update = fit_update(OLD.logit(x), y)
    monkeypatch.setattr("calibration.fitting.OF_ANOTHER_SET", INTERCEPT_SPREAD)
    reference = fit_shrunk(OLD, x, y, C=1e-9)
    np.testing.assert_allclose(update.logit(OLD.logit(x)), reference.logit(x), atol=1e-5)


def test_no_label_moves_little_and_many_labels_leave_nothing_of_the_old_map() -> None:
    x, y = rows(40_000)
    few = fit_shrunk(OLD, x[:5], y[:5], C=0.01)
    assert np.abs(few.logit(x[:500]) - OLD.logit(x[:500])).max() < 2
    many, fresh = fit_shrunk(OLD, x, y, C=0.1), fit_logistic(x, y)
    assert np.abs(many.predict(x) - fresh.predict(x)).mean() < 0.005


def test_with_few_labels_it_is_nearer_the_truth_than_a_fit_from_nothing() -> None:
    """Over eight worlds of 25 labels each: log loss on 2,000 rows that were not fitted on."""
    x, y = rows(2000, seed=99)
    reference, fresh = [], []
    for seed in range(8):
        few_x, few_y = rows(25, seed=seed)
        maps = (fit_two_stage(few_x, few_y, reference=old)[0] for old in (OLD, None))
        a, b = (log_loss(y, m.predict(x)) for m in maps)
        reference.append(a)
        fresh.append(b)
    assert np.mean(reference) < np.mean(fresh) - 0.01


def test_at_full_labels_nothing_is_lost_to_a_fit_from_nothing() -> None:
    """1,000 labels of a world that the old map has all wrong: cross-fitted loss within 0.003."""
    wrong = LogisticMap((-0.8, 0.5, 0.0), 1.0, OLD.mean, OLD.scale, OLD.low, OLD.high)
    x, y = rows(1000, seed=3)
    p = [
        cross_fit_two_stage(["logistic"], Rows.of(x, y), Folds(reference=old))["logistic"]
        for old in (wrong, None)
    ]
    assert (row_losses(y, p[0]) - row_losses(y, p[1])).mean() < 0.003


@pytest.mark.parametrize("hits", [0, 1])
def test_labels_of_one_class_and_separated_ones_give_finite_maps(hits: int) -> None:
    """Where plain Newton runs off to infinity the priors and the range hold it."""
    x, _ = rows(30)
    fitted, _, _ = fit_two_stage(x, np.full(30, hits), reference=OLD)
    assert ((fitted.predict(x) > 0.5) == hits).mean() > 0.6
    apart = (x[:, 0] > 1).astype(int)
    far = np.array([[1e9, -1e9, 1e9], [-1e9, 1e9, -1e9]])
    found = fit_shrunk(OLD, x, apart, C=10.0)
    assert np.abs(found.logit(far)).max() < 60


def test_it_does_not_extrapolate_beyond_what_its_labels_have_shown() -> None:
    """Few labels leave the range of the old map nearly as it is, many narrow it to their own."""
    x, y = rows(10_000)
    inside = x[np.abs(x[:, 0] - 1) < 1], y[np.abs(x[:, 0] - 1) < 1]
    few, many = (fit_shrunk(OLD, inside[0][:n], inside[1][:n], C=0.1) for n in (5, 3000))
    assert OLD.low[0] < few.low[0] < -4
    assert few.low[0] < many.low[0] < inside[0][:3000, 0].min()
    assert many.low[0] == pytest.approx(0.0, abs=0.15)
    assert inside[0][:3000, 0].max() < many.high[0] < few.high[0] < OLD.high[0]


@pytest.mark.parametrize("n", [20, 40, 300])
def test_no_probability_is_beyond_what_the_labels_can_support(n: int) -> None:
    """Laplace's rule, with the labels of the old map: also for scores that no label came near."""
    s = np.linspace(-1, 8, n)
    fitted = update_of(Rows.of(s, s > 0), bounded=True)
    most = (n + OLD_EFFECTIVE_N + 1) / (n + OLD_EFFECTIVE_N + 2)
    p = fitted.predict([-1000.0, -3.0, 0.0, 3.0, 1000.0])
    assert p[-1] == pytest.approx(most)
    assert p[0] == pytest.approx(1 - most)
    assert (np.diff(p) >= 0).all()


def test_copies_of_labels_say_no_more_than_the_labels() -> None:
    """Five copies a question, told apart by their group, move the map as the questions do."""
    x, y = rows(40)
    once = fit_shrunk(OLD, x, y, C=0.1)
    again = fit_shrunk(OLD, np.repeat(x, 5, 0), np.repeat(y, 5), np.repeat(range(40), 5), C=0.1)
    np.testing.assert_allclose(again.logit(x), once.logit(x), atol=0.05)
    np.testing.assert_allclose(again.low, once.low, atol=0.1)
    np.testing.assert_allclose(again.high, once.high, atol=0.1)


def test_bad_numbers_are_named() -> None:
    x, y = rows(10)
    with pytest.raises(ValueError, match="C"):
        fit_shrunk(OLD, x, y, C=0.0)
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        fit_shrunk(OLD, x, y + 1, C=0.1)

"""A slope and an intercept from few labels: what moves, by how much, and what is promised after."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from calibration.arrays import log_odds
from calibration.fitting import fit_update
from calibration.maps import LogisticMap
from calibration.metrics.scores import row_losses
from calibration.recalibration import (
    WORSE,
    Recalibration,
    compose_updates,
    fit_recalibration,
    rebase_update,
)
from calibration.score_fitting import fit_platt
from calibration.thresholds import certify

fitted = partial(fit_recalibration, target=0.7)


def learned(shift: float, n: int, seed: int = 0) -> Recalibration:
    """What n labels teach where the log odds of the truth are `shift` above the confidence's."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=n)
    right = (rng.random(n) < expit(z + shift)).astype(np.int64)
    return fitted(expit(z), right, [str(i) for i in range(n)])


def test_a_fall_in_accuracy_is_found_and_mended() -> None:
    """After a fall of one in log odds, 200 labels take most of it away, and an alarm is raised."""
    found = learned(-1.0, 200)
    assert found.update.intercept == pytest.approx(-1, abs=0.35)
    assert found.gain > 0.03
    assert found.monitor.alarmed
    assert found.table["after"].smece < found.table["before"].smece


def test_without_a_change_little_moves() -> None:
    """Where the confidence was true, an update stays small and no alarm is raised."""
    found = learned(0.0, 200)
    assert abs(found.update.intercept) < 0.35
    assert found.gain > -0.01
    assert not found.monitor.alarmed


def test_what_is_not_accepted_after_the_update_is_not_certified() -> None:
    """Confidences that were far too low are right 85 times in a hundred: all of them together would
    be certified, and those that stay below the target are not.
    """
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 600)
    right = (rng.random(600) < 0.85).astype(np.int64)
    assert certify(right, p).accepted == 600
    found = fitted(p, right, [str(i) for i in range(600)])
    assert found.certificate.threshold is not None
    assert found.certificate.threshold >= 0.7 - 1e-9
    too_sure = fitted(p, 1 - right, [str(i) for i in range(600)])
    assert too_sure.certificate.threshold is None


def test_the_certificate_is_carried_through_the_update() -> None:
    """Its threshold accepts the same queries after the update as it did before."""
    rng = np.random.default_rng(1)
    z = 2 * rng.normal(size=500)
    right = (rng.random(500) < expit(z)).astype(np.int64)
    found = fitted(expit(z), right, [str(i) for i in range(500)])
    moved = found.update.predict(z)
    assert found.certificate.threshold is not None
    assert (moved >= found.certificate.threshold - 1e-12).sum() == found.certificate.accepted


def test_a_certificate_may_rest_on_some_of_the_labels() -> None:
    """All labels move the map; the certificate counts those that are `certifying`."""
    rng = np.random.default_rng(1)
    z = 1 + 2 * rng.normal(size=500)
    right = (rng.random(500) < expit(z)).astype(np.int64)
    every, ids = np.arange(500), [str(i) for i in range(500)]
    found = fitted(expit(z), right, ids, certifying=every < 300)
    whole = fitted(expit(z), right, ids)
    assert found.update == whole.update
    assert (found.certificate.queries, whole.certificate.queries) == (300, 500)
    assert found.certificate.threshold is not None
    reach = found.update.predict(z)[:300] >= found.certificate.threshold
    assert reach.sum() == found.certificate.accepted


def test_two_updates_are_one() -> None:
    """Applying the first and then the second is applying what `then` makes of them."""
    one, two = (LogisticMap((a,), b, (0.0,), (1.0,)) for a, b in ((0.5, -1.0), (1.3, 0.2)))
    z = np.linspace(-3, 3, 7)
    expected = two.predict(log_odds(one.predict(z)))
    np.testing.assert_allclose(compose_updates(one, two).predict(z), expected, rtol=1e-9)
    assert compose_updates(None, two) == two


def test_a_kinds_update_is_carried_behind_another() -> None:
    """The other first and the carried one then is the kind's first and the other then."""
    kind, other = (LogisticMap((a,), b, (0.0,), (1.0,)) for a, b in ((0.5, -1.0), (1.3, 0.2)))
    z = np.linspace(-3, 3, 7)
    expected = other.predict(log_odds(kind.predict(z)))
    found = rebase_update(kind, other).predict(log_odds(other.predict(z)))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_slope_at_its_bound_keeps_the_mean() -> None:
    """Where the truth falls with the confidence, more labels do not make the update worse."""
    rng = np.random.default_rng(4)
    z = 2 + 0.6 * rng.normal(size=3000)
    y = (rng.random(3000) < expit(1 - 1.5 * (z - 2))).astype(np.int64)
    update = fit_update(z, y)
    assert update.coef[0] == pytest.approx(0.05)
    assert update.predict(z).mean() == pytest.approx(y.mean(), abs=0.01)


def test_the_prior_gives_way_to_strong_evidence_only() -> None:
    """A truth far from the prior is reached by 100 labels; a near one moves as it did before."""
    rng = np.random.default_rng(5)
    z = 1.5 + 2 * rng.normal(size=100)
    far = fit_update(z, rng.random(100) < expit(0.3 * z - 3.0))
    assert far.intercept == pytest.approx(-3.0, abs=0.6)
    near = rng.random(100) < expit(0.9 * z - 0.2)
    free = fit_platt(z, near)
    assert abs(fit_update(z, near).coef[0] - 1) < abs(free.coef[0] / free.scale[0] - 1)


def test_copies_of_labels_teach_nothing_new() -> None:
    """Five rephrasings of each question, right or wrong together, move the map as far as one of
    each does, and the sentence gives their effective number.
    """
    rng = np.random.default_rng(6)
    z = 1.5 * rng.normal(size=60)
    y = (rng.random(60) < expit(z - 0.7)).astype(np.int64)
    once = fit_update(z, y)
    groups = np.repeat(np.arange(60), 5)
    again = fit_update(np.repeat(z, 5), np.repeat(y, 5), groups)
    assert again.coef[0] == pytest.approx(once.coef[0], abs=0.02)
    assert again.intercept == pytest.approx(once.intercept, abs=0.02)
    assert abs(fit_update(np.repeat(z, 5), np.repeat(y, 5)).intercept) > abs(once.intercept) + 0.1
    found = fitted(expit(np.repeat(z, 5)), np.repeat(y, 5), groups)
    assert found.effective == pytest.approx(59)
    assert found.sentences()[0].startswith("300 labels, worth 59 independent ones: ")
    alone = fitted(expit(z), y, [str(i) for i in range(60)])
    assert alone.sentences()[0].startswith("60 labels: ")


def test_a_large_error_does_not_make_independent_labels_dependent() -> None:
    """The old confidence is far too low; its errors have one sign, in groups or not."""
    rng = np.random.default_rng(0)
    z = rng.normal(-0.85, 1, 150)
    y = (rng.random(150) < expit(z + 2.2)).astype(int)
    grouped, alone = (
        fitted(expit(z), y, groups) for groups in (np.repeat(np.arange(15), 10), np.arange(150))
    )
    assert grouped.effective > 75  # not around the mean: about 26
    means = [found.update.predict(z).mean() for found in (grouped, alone)]
    assert means[0] == pytest.approx(means[1], abs=0.03)


def test_where_nothing_moved_copies_cost_no_more_than_single_labels() -> None:
    """Fifty questions five times over, of a confidence that was true: the log loss on new questions
    rises by no more than the prior's own 0.01 in the mean.
    """
    rng, z_new = np.random.default_rng(7), 1.5 * np.random.default_rng(8).normal(size=4000)
    truth = expit(z_new)

    def cost(update: LogisticMap) -> float:
        p = update.predict(z_new)
        both = truth * np.log(p / truth) + (1 - truth) * np.log((1 - p) / (1 - truth))
        return float(-both.mean())

    known, blind = [], []
    for _ in range(40):
        z = np.repeat(1.5 * rng.normal(size=50), 5)
        y = np.repeat(rng.random(50), 5) < expit(z)
        known.append(cost(fit_update(z, y, np.repeat(np.arange(50), 5))))
        blind.append(cost(fit_update(z, y)))
    assert np.mean(known) < 0.01
    assert np.mean(blind) > 1.5 * np.mean(known)


def test_a_loss_is_told_as_one() -> None:
    """Not as a gain below zero."""
    found = replace(learned(0.0, 300), gain_interval=(-0.05, 0.02))
    better, worse = (replace(found, gain=gain).sentences()[1] for gain in (0.0123, -0.0123))
    assert better.endswith("log loss 0.0123 nats better [95%: -0.0500 to 0.0200], cross-fitted.")
    assert worse.endswith("log loss 0.0123 nats worse [95%: -0.0200 to 0.0500], cross-fitted.")
    unknown = replace(found, gain=0.0123, gain_interval=(np.nan, np.nan))
    assert unknown.sentences()[1].endswith("log loss 0.0123 nats better, cross-fitted.")
    assert not unknown.worse


def test_an_update_that_is_measurably_worse_is_advised_against() -> None:
    """One whose interval is below zero; an interval around zero proves nothing."""
    found = learned(0.0, 300)
    worse = replace(found, gain=-0.03, gain_interval=(-0.05, -0.01))
    assert worse.worse
    assert worse.sentences() == [WORSE, *worse.sentences()[1:]]
    assert "Keep the old model" in WORSE
    unclear = replace(worse, gain_interval=(-0.05, 0.01))
    assert not unclear.worse
    assert WORSE not in unclear.sentences()


def test_the_interval_of_the_gain_is_students_by_group() -> None:
    """As SciPy computes it for single labels, with one more of 1 nat; copies do not narrow it."""
    found = learned(-1.0, 200)
    gains = row_losses(found.right, found.before) - row_losses(found.right, found.after)
    error = np.hypot(stats.sem(gains), 1 / 200)
    expected = stats.t.interval(0.95, 199, loc=gains.mean(), scale=error)
    assert found.gain_interval == pytest.approx(expected, abs=1e-12)
    copied = fitted(
        np.repeat(found.before, 3), np.repeat(found.right, 3), np.repeat(np.arange(200), 3)
    )
    width, of_copies = (np.ptp(one.gain_interval) for one in (found, copied))
    assert of_copies == pytest.approx(width, rel=0.1)


@pytest.mark.parametrize(
    ("certifying", "sentence"),
    [
        (np.arange(5), r"shape \(20,\), .* got int64 of shape \(5,\)"),
        (np.ones(20), "got float64"),
        ([True], r"of shape \(1,\)"),
        (np.zeros(20, dtype=np.bool_), "true for one at least"),
        (np.ma.masked_array([True] * 20, [True] * 20), "got 20 masked"),
    ],
)
def test_labels_that_certify_are_marked_one_by_one(certifying: Any, sentence: str) -> None:
    """Numbers of rows, counts and marks of other rows are refused, and so is no mark at all."""
    p, y, groups = np.linspace(0.1, 0.9, 20), np.arange(20) % 2, np.arange(20)
    with pytest.raises(ValueError, match=sentence):
        fitted(p, y, groups, certifying=certifying)
    assert fitted(p, y, groups, certifying=[True] * 20).certificate.queries == 20


def test_confidences_that_an_update_cannot_tell_apart_are_certified_together() -> None:
    """Log odds end at a probability of 1e-6: above it the update gives all the same confidence."""
    sure, low = 1 - np.geomspace(1e-12, 3e-7, 400), np.linspace(0.01, 0.6, 300)
    p = np.r_[sure, low]
    rows = np.arange(700)
    y = np.where(rows < 280, rows % 20 > 0, (rows < 400) & (rows % 2 > 0))  # the surest are better
    found = fitted(p, y, rows)
    assert found.certificate.threshold is not None
    accepted = found.update.predict(log_odds(p)) >= found.certificate.threshold
    assert found.certificate.accepted == accepted.sum() == 400

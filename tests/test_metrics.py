"""Metrics against relplot, scikit-learn, loops that are slow and obvious, and tables by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn import metrics as theirs
from sklearn.isotonic import IsotonicRegression

from calibration import metrics

Y = np.array([1, 0, 1, 1, 0, 0, 1, 0])
JUDGED = (0.304113432295, 0.189063111111, 0.605160082411)
P = np.array([0.9, 0.8, 0.7, 0.7, 0.7, 0.4, 0.3, 0.1])


def sample(seed: int, n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Return y and p of a world that is exact, dented, saturated, rounded or constant by turns."""
    rng = np.random.default_rng(seed)
    p = rng.beta(*rng.uniform(0.3, 4, 2), n)
    truth = [p, 0.7 * p + 0.1, p**2, 1 - p, np.full(n, 0.5)][seed % 5]
    if seed % 5 == 2:
        p = 1 / (1 + np.exp(-12 * (p - 0.3)))
    if seed % 5 == 4:
        p = np.round(p, 1)
    return (rng.random(n) < truth).astype(float), p


@pytest.mark.parametrize("seed", range(10))
def test_smece_is_relplots(seed: int) -> None:
    """Our smECE is that of the authors' package to a thousandth."""
    relplot = pytest.importorskip("relplot")
    y, p = sample(seed, n=[60, 400, 1500][seed % 3])
    assert metrics.smece(y, p) == pytest.approx(float(relplot.smECE(f=p, y=y)), abs=1e-3)


def test_smece_of_cases_with_a_known_answer() -> None:
    """Sure and right is 0, sure and wrong 1; where p is constant, it is |accuracy - p|."""
    assert metrics.smece([1, 1, 0], [1.0, 1.0, 0.0]) == 0
    assert metrics.smece([1], [0.0]) == pytest.approx(1)
    assert metrics.smece(np.arange(10) % 2, np.full(10, 0.8)) == pytest.approx(0.3, abs=1e-3)


def test_smece_does_not_depend_on_order() -> None:
    """Shuffling the rows changes nothing but the last digits."""
    y, p = sample(1)
    order = np.random.default_rng(0).permutation(len(y))
    assert metrics.smece(y[order], p[order]) == pytest.approx(metrics.smece(y, p), abs=1e-12)


def test_smece_floor_is_where_true_models_are() -> None:
    """Of 200 exactly calibrated samples about 5 % lie above the floor's 95 % point."""
    p = np.random.default_rng(5).beta(2, 2, 300)
    mean, high = metrics.smece_floor(p, draws=200, random_state=1)
    rng = np.random.default_rng(6)
    found = np.array([metrics.smece(rng.random(300) < p, p) for _ in range(200)])
    assert found.mean() == pytest.approx(mean, rel=0.1)
    assert 0.01 <= (found > high).mean() <= 0.11


@pytest.mark.parametrize("seed", range(5))
def test_scikit_learns_numbers(seed: int) -> None:
    """Brier score, log loss and AUROC are scikit-learn's."""
    y, p = sample(seed, 300)
    assert metrics.brier(y, p) == pytest.approx(theirs.brier_score_loss(y, p))
    assert metrics.auroc(y, p) == pytest.approx(theirs.roc_auc_score(y, p))
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    assert metrics.log_loss(y, p) == pytest.approx(theirs.log_loss(y, clipped))


def test_log_loss_of_one_sure_miss_is_finite() -> None:
    """A miss at probability 1 costs -log(1e-6)."""
    assert metrics.log_loss([0], [1.0]) == pytest.approx(13.8155, abs=1e-4)


def test_auroc_of_one_class_is_nan() -> None:
    """Without a miss there is nothing to tell apart."""
    assert np.isnan(metrics.auroc([1, 1], [0.2, 0.3]))
    assert np.isnan(metrics.naurc([1, 1], [0.2, 0.3]))


def test_debiased_ece_by_hand() -> None:
    """20 rows at 0.5, all right: a gap of 0.5 less a fair coin's mean |k/20 - 1/2|, 0.0881."""
    found = metrics.ece_debiased(np.ones(20), np.full(20, 0.5), bins=1, draws=20000)
    assert found == pytest.approx(0.5 - 0.0881, abs=2e-3)


def test_debiased_ece_of_a_true_model_is_about_zero() -> None:
    """The plain 15-bin ECE of a true model is about 0.086 at n = 200; debiased it is near 0."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        p = rng.beta(2, 2, 200)
        found.append(metrics.ece_debiased(rng.random(200) < p, p, draws=50))
    assert np.mean(found) < 0.02


def slow_curves(y: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Return AURC and AUGRC as means over every order that p allows; only for a few rows."""
    orders = [
        o
        for o in itertools.permutations(range(len(y)))
        if all(p[a] >= p[b] for a, b in itertools.pairwise(o))
    ]
    aurc = augrc = 0.0
    for o in orders:
        wrong = 0
        for k, row in enumerate(o, start=1):
            wrong += 1 - y[row]
            aurc += wrong / k / len(y) / len(orders)
            augrc += wrong / len(y) / len(y) / len(orders)
    return aurc, augrc


def test_risk_coverage_is_the_mean_over_every_break_of_ties() -> None:
    """The areas equal those of a loop over all orders, ties included."""
    aurc, augrc = slow_curves(Y, P)
    assert metrics.aurc(Y, P) == pytest.approx(aurc)
    assert metrics.augrc(Y, P) == pytest.approx(augrc)
    best = slow_curves(Y, Y)[0]
    assert metrics.naurc(Y, P) == pytest.approx((0.5 - aurc) / (0.5 - best))


def test_risk_coverage_by_another_hand() -> None:
    """1,500 seeded rows; the numbers are from an independent script that breaks ties by chance."""
    rng = np.random.default_rng(7)
    p = rng.beta(2, 2, 1500)
    y = rng.random(1500) < p
    found = metrics.aurc(y, p), metrics.augrc(y, p), metrics.naurc(y, p)
    assert found == pytest.approx(JUDGED, abs=1e-9)


def test_naurc_ends() -> None:
    """The oracle has 1; a constant confidence is chance, 0."""
    assert metrics.naurc(Y, Y.astype(float)) == pytest.approx(1)
    assert metrics.naurc(Y, np.full(8, 0.3)) == pytest.approx(0)


def test_nauc_is_mtebs() -> None:
    """The numbers of mteb 2.26.24's `nauc` on 1,500 seeded rows, without ties and with."""
    rng = np.random.default_rng(7)
    p = rng.beta(2, 2, 1500)
    y = rng.random(1500) < p
    assert metrics.nauc(y, p) == pytest.approx(0.5714640231382331, abs=1e-12)
    assert metrics.nauc(y, np.round(p, 1)) == pytest.approx(0.5585062748366059, abs=1e-12)
    assert metrics.nauc(Y, Y.astype(float)) == pytest.approx(1)
    assert np.isnan(metrics.nauc([1, 1], [0.2, 0.3]))


def test_the_corp_parts_by_hand() -> None:
    """Four rows of 0.2, a quarter right, and four of 0.6, all right; the isotonic fit is 1/4, 1.

    Brier score (0.64 + 3 x 0.04 + 4 x 0.16) / 8 = 0.175, of the fit 4 x 3/16 / 8 = 0.09375, of the
    base rate 5/8 x 3/8.
    """
    y, p = [1, 0, 0, 0, 1, 1, 1, 1], [0.2] * 4 + [0.6] * 4
    miscalibration, discrimination, uncertainty = metrics.corp(y, p)
    assert miscalibration == pytest.approx(0.175 - 0.09375)
    assert discrimination == pytest.approx(15 / 64 - 0.09375)
    assert uncertainty == pytest.approx(15 / 64)


@pytest.mark.parametrize("seed", range(3))
def test_the_corp_parts_make_up_the_brier_score(seed: int) -> None:
    """Miscalibration less discrimination plus uncertainty, and the fit is scikit-learn's."""
    y, p = sample(seed, 300)
    miscalibration, discrimination, uncertainty = metrics.corp(y, p)
    whole = miscalibration - discrimination + uncertainty
    assert whole == pytest.approx(metrics.brier(y, p))
    best = metrics.brier(y, IsotonicRegression(out_of_bounds="clip").fit_transform(p, y))
    assert miscalibration == pytest.approx(metrics.brier(y, p) - best)


def test_the_band_by_hand() -> None:
    """Rows at 0.65, 0.7 and 0.75 lie within 0.05 of 0.7; 0.6 and 0.8 do not."""
    found = metrics.band([1, 1, 0, 1, 0], [0.6, 0.66, 0.7, 0.74, 0.8], 0.7)
    assert found == (3, pytest.approx(0.7), pytest.approx(2 / 3))
    assert metrics.band([1], [0.2], 0.7)[0] == 0


def test_coverage_and_selective_accuracy_by_hand() -> None:
    """Five of eight reach 0.7, the border included, and three of them are right."""
    assert metrics.coverage(P, 0.7) == 5 / 8
    assert metrics.selective_accuracy(Y, P, 0.7) == 3 / 5
    assert np.isnan(metrics.selective_accuracy(Y, P, 0.95))


@pytest.mark.parametrize(
    ("y", "p", "sentence"),
    [
        ([0, 1], [0.5], "y has shape"),
        ([0, 2], [0.5, 0.5], "0 or 1, got 2"),
        ([0, 1], [0.5, 1.5], r"lie in \[0, 1\], got 1.5"),
        ([0, 1], [0.5, np.nan], "got nan"),
        ([], [], "n >= 1"),
        ([[1]], [[0.5]], r"shape \(n,\)"),
    ],
)
def test_nonsense_is_refused(y: list, p: list, sentence: str) -> None:
    """Every metric checks its arguments by the one checker."""
    with pytest.raises(ValueError, match=sentence):
        metrics.smece(y, p)


def test_bootstrap_is_the_textbooks() -> None:
    """For a mean, the interval is about 1.96 standard errors to each side."""
    y, p = sample(0, 2000)
    low, high = metrics.bootstrap_interval(metrics.brier, y, p, draws=800)
    error = ((p - y) ** 2).std() / np.sqrt(2000)
    middle = metrics.brier(y, p)
    assert (low, high) == pytest.approx((middle - 1.96 * error, middle + 1.96 * error), rel=0.02)


def test_bootstrap_resamples_whole_groups() -> None:
    """Every row ten times over in one group: as wide as without the copies, not narrower."""
    y, p = sample(0, 200)
    alone = np.ptp(metrics.bootstrap_interval(metrics.brier, y, p, draws=400))
    copies = metrics.bootstrap_interval(
        metrics.brier, np.repeat(y, 10), np.repeat(p, 10), np.repeat(np.arange(200), 10), draws=400
    )
    assert np.ptp(copies) == pytest.approx(alone, rel=1e-9)


def test_bootstrap_leaves_out_what_has_no_value() -> None:
    """Draws of one class have no AUROC and are left out; one class alone has no interval."""
    y, p = [0] + [1] * 9, [0.1] + [0.5] * 9
    assert metrics.bootstrap_interval(metrics.auroc, y, p, draws=50) == (1, 1)
    assert np.isnan(metrics.bootstrap_interval(metrics.auroc, [1] * 10, p)).all()


def test_few_groups_have_no_interval() -> None:
    """A hundred rows of nine groups are nine draws: too few to resample."""
    y, p = sample(0, 108)
    for count, known in ((9, False), (12, True)):
        found = metrics.bootstrap_interval(metrics.brier, y, p, np.arange(108) % count, draws=50)
        assert np.isfinite(found).all() == known

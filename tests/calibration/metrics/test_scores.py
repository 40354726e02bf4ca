"""Metrics against relplot, scikit-learn, loops that are slow and obvious, and tables by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import foldnorm as folded_normal
from scipy.stats import norm
from scipy.stats import t as student
from sklearn import metrics as theirs
from sklearn.isotonic import IsotonicRegression

from calibration import metrics
from calibration.metrics.calibration_error import dependence
from calibration.metrics.intervals import student_interval

Y = np.array([1, 0, 1, 1, 0, 0, 1, 0])
JUDGED = (0.304113432295, 0.189063111111, 0.605160082411)
MTEB_OF_FEW = (
    0.09090909090909091,
    0.5736010336944638,
    0.3053933308243558,
    0.5226506237471242,
    0.3342819244369086,
    0.35100716062126114,
)
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
    """Of 200 exactly calibrated samples about 5% lie above the floor's 95% point."""
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


def test_the_floor_knows_groups() -> None:
    """Sixty groups of five copies, exactly calibrated: rarely above the 95% point by groups.

    By rows it is above in most draws; labels that do not go together need no such room.
    """
    group, above, by_rows = np.repeat(np.arange(60), 5), 0, 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p = rng.beta(2, 2, 60)[group]
        y = rng.random(60)[group] < p
        found = metrics.smece(y, p)
        above += found > metrics.smece_floor(p, groups=group, y=y, draws=60)[1]
        by_rows += found > metrics.smece_floor(p, draws=60)[1]
    assert above <= 5
    assert by_rows >= 15
    alone = rng.random(300) < p
    loose = metrics.smece_floor(p, groups=group, y=alone)[1]
    assert loose == pytest.approx(metrics.smece_floor(p)[1], rel=0.3)
    assert metrics.smece_floor(p, groups=group)[1] > 1.5 * loose


def test_a_confidence_that_is_too_high_does_not_look_dependent() -> None:
    """Independent labels in groups of thirty, of which a fifth fewer are right than it says."""
    rng = np.random.default_rng(0)
    p, groups = rng.uniform(0.4, 0.95, 600), np.repeat(np.arange(20), 30)
    y = rng.random(600) < p - 0.2
    assert dependence(y, p, groups) < 0.1  # not around the mean: .38
    assert dependence(y, p, np.zeros(600, dtype=np.int64)) == 1  # of one group nothing is known


def test_dependence_by_hand() -> None:
    """Pairs of a half that are alike go together wholly, and those that differ not at all."""
    p, pairs = np.full(40, 0.5), np.repeat(np.arange(20), 2)
    assert dependence(np.array([0.0, 1] * 10 + [1, 0] * 10), p, pairs) == 0
    assert dependence(np.arange(20)[pairs] % 2, p, pairs) == pytest.approx(1)
    assert dependence(np.arange(40) % 2, p, np.arange(40)) == 0


def test_debiased_ece_by_hand() -> None:
    """20 rows at 0.5: all right is a gap of 0.5; 12 right one that shows 0.1 on average.

    The rate is 13 / 22 and its error 0.10994, and |N(0.0568, 0.10994)| has the mean 0.1.
    """
    assert metrics.ece_debiased(np.ones(20), np.full(20, 0.5)) == pytest.approx(0.5, abs=1e-6)
    found = metrics.ece_debiased([1] * 12 + [0] * 8, np.full(20, 0.5))
    error = np.sqrt(13 / 22 * 9 / 22 / 20)
    assert folded_normal(found / error, scale=error).mean() == pytest.approx(0.1)
    assert metrics.ece_debiased([1] * 11 + [0] * 9, np.full(20, 0.5)) == 0


def test_debiased_ece_does_not_depend_on_order() -> None:
    """A hundred wrong and a hundred right at one half are right in half, in whatever order."""
    assert metrics.ece_debiased(np.arange(200) >= 100, np.full(200, 0.5)) == 0
    y, p = sample(4)
    order = np.random.default_rng(0).permutation(len(y))
    assert metrics.ece_debiased(y[order], p[order]) == pytest.approx(metrics.ece_debiased(y, p))


@pytest.mark.parametrize(("gap", "n"), [(0.0, 1000), (0.05, 200), (0.05, 1000), (0.1, 200)])
def test_debiased_ece_is_about_the_true_one(gap: float, n: int) -> None:
    """A confidence that is short by a gap has that ECE, on average over 60 samples."""
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        p = rng.uniform(0.1, 0.85, n)
        found.append(metrics.ece_debiased(rng.random(n) < p + gap, p))
    assert np.mean(found) == pytest.approx(gap, abs=0.02)


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
    """The numbers of mteb 2.26.24's `nauc` on 1,500 seeded rows, without ties and with.

    And on the first few of them, where a tenth of the rows is a half row.
    """
    rng = np.random.default_rng(7)
    p = rng.beta(2, 2, 1500)
    y = rng.random(1500) < p
    assert metrics.nauc(y, p) == pytest.approx(0.5714640231382331, abs=1e-12)
    assert metrics.nauc(y, np.round(p, 1)) == pytest.approx(0.5585062748366059, abs=1e-12)
    found = [metrics.nauc(y[:n], p[:n]) for n in (5, 15, 25, 35, 45, 55)]
    assert found == pytest.approx(MTEB_OF_FEW, abs=1e-12)
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


def test_a_weight_is_that_many_rows() -> None:
    """Of each mean over rows; scikit-learn's agree, and weights that are none are refused."""
    y, p = sample(0, 50)
    w = np.random.default_rng(1).integers(0, 3, size=50)
    repeated = np.repeat(y, w), np.repeat(p, w)
    for name, more in (("brier", ()), ("log_loss", ()), ("selective_accuracy", (0.5,))):
        metric = getattr(metrics, name)
        found = metric(y, p, *more, sample_weight=w)
        assert found == pytest.approx(metric(*repeated, *more))
    assert metrics.brier(y, p, sample_weight=w) == pytest.approx(
        theirs.brier_score_loss(y, p, sample_weight=w)
    )
    assert metrics.coverage(p, 0.5, sample_weight=w) == pytest.approx(
        metrics.coverage(repeated[1], 0.5)
    )
    for wrong in (w[1:], -w, 0 * w):
        with pytest.raises(ValueError, match="sample_weight"):
            metrics.brier(y, p, sample_weight=wrong)


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


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    """It is about 1.96 standard errors to each side."""
    y, p = sample(0, 2000)
    low, high = metrics.brier_interval(y, p)
    error = ((p - y) ** 2).std() / np.sqrt(2000)
    middle = metrics.brier(y, p)
    assert (low, high) == pytest.approx((middle - 1.96 * error, middle + 1.96 * error), rel=0.05)


def test_rows_that_all_agree_do_not_show_that_none_differs() -> None:
    """Two orders that are equally good for twelve queries may differ for others."""
    assert student_interval(np.zeros(12)) == (0, 0, 0)
    found = student_interval(np.zeros(12), unseen=1.0)
    room = student.ppf(0.975, 11) / 12
    assert found == pytest.approx((0, -room, room))


def test_groups_count_and_not_rows() -> None:
    """Every row ten times over in one group: as wide as without the copies, not narrower."""
    y, p = sample(0, 200)
    alone = np.ptp(metrics.brier_interval(y, p))
    copies = metrics.brier_interval(
        np.repeat(y, 10), np.repeat(p, 10), np.repeat(np.arange(200), 10)
    )
    assert np.ptp(copies) == pytest.approx(alone, rel=1e-9)


def test_no_miss_so_far_is_no_proof_of_calibration() -> None:
    """Thirty right answers with 0.98 may be of a truth of 0.9: 4% of its samples are like this."""
    _, high = metrics.smece_interval(np.ones(30), np.full(30, 0.98), draws=50)
    assert high > 0.08


def test_one_class_has_no_interval() -> None:
    """There is no order to measure."""
    assert np.isnan(metrics.auroc_interval([1] * 10, [0.1] + [0.5] * 9)).all()


def test_the_interval_of_auroc_is_newcombes() -> None:
    """At its ends, the AUROC measured lies z errors away, in Hanley and McNeil's variance there."""
    y, p = sample(1, 300)
    area, hits = metrics.auroc(y, p), y.sum()
    misses = 300 - hits
    for end in metrics.auroc_interval(y, p):
        spread = 1 + 149 * ((1 - end) / (2 - end) + end / (1 + end))
        error = np.sqrt(end * (1 - end) * spread / hits / misses)
        assert abs(area - end) / error == pytest.approx(1.968, rel=0.05)


def test_separated_classes_are_not_surely_so() -> None:
    """Twenty rows that are told apart do not prove an AUROC of 1; an end never leaves [0, 1]."""
    y, p = np.arange(20) >= 10, np.linspace(0.1, 0.9, 20)
    low, high = metrics.auroc_interval(y, p)
    assert 0.7 < low < 0.9
    assert high == 1
    copies = metrics.auroc_interval(np.repeat(y, 5), np.repeat(p, 5), np.repeat(range(20), 5))
    assert copies[0] < 0.9


@pytest.mark.parametrize("steep", [1.0, 5.0])
def test_intervals_hold_with_few_rows(steep: float) -> None:
    """With 50 rows, AUROC 0.74 or 0.96, the intervals hold AUROC and Brier score in 92% or so."""
    z = norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    truth, told = expit(0.3 + steep * z), expit(0.6 + 1.5 * steep * z)
    below = np.cumsum(1 - truth) - (1 - truth) / 2
    area = (truth * below).sum() / truth.sum() / (1 - truth).sum()
    score = (truth * (1 - told) ** 2 + (1 - truth) * told**2).mean()
    held, rng = np.zeros(2), np.random.default_rng(0)
    for _ in range(300):
        row = rng.integers(100_000, size=50)
        y, p = rng.random(50) < truth[row], told[row]
        found = metrics.auroc_interval(y, p), metrics.brier_interval(y, p)
        for i, (value, (low, high)) in enumerate(zip((area, score), found, strict=True)):
            held[i] += low <= value <= high
            assert 0 <= low <= high <= 1
    assert (held / 300).min() > 0.91


def test_scores_that_are_all_alike_leave_room() -> None:
    """Thirty hits at 0.9 score 0.01 each; a miss, at 0.81, may yet be in every ninth row."""
    low, high = metrics.brier_interval(np.ones(30), np.full(30, 0.9))
    unseen = 1 - 0.025 ** (1 / 30)
    assert (low, high) == pytest.approx((0.01 * (1 - unseen), 0.01 * (1 - unseen) + unseen))


@pytest.mark.parametrize("n", [20, 50])
def test_a_rare_event_that_no_row_shows_is_in_the_intervals(n: int) -> None:
    """Exactly calibrated confidences of 2%, and most samples hold no hit."""
    held = np.zeros(2)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = expit(rng.normal(-4.5, 1, n))
        y = rng.random(n) < p
        low, high = metrics.brier_interval(y, p)
        held += low <= 0.0168 <= high, metrics.smece_interval(y, p, draws=100)[0] == 0
    assert (held >= 54).all()


@pytest.mark.parametrize(("slope", "n"), [(1.0, 200), (0.9, 200), (0.9, 1000), (0.6, 1000)])
def test_the_interval_of_smece_holds_it(slope: float, n: int) -> None:
    """A confidence sigmoid(z) whose truth is sigmoid(slope z): exact, or a little too sure.

    The true smECE is that of the truth itself in the place of labels, by relplot's formula.
    """
    true, held = {1.0: 0.0, 0.9: 0.0153, 0.6: 0.0663}[slope], 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        z = rng.normal(0.3, 1.2, n)
        y, p = rng.random(n) < expit(slope * z), expit(z)
        low, high = metrics.smece_interval(y, p, draws=100, random_state=seed)
        held += low <= true <= high
        assert low <= metrics.smece(y, p) <= high
    assert held >= 23


def test_the_interval_of_smece_narrows() -> None:
    """With many rows both ends are near the estimate; copies of rows do not narrow it."""
    rng = np.random.default_rng(0)
    p = rng.beta(2, 2, 20000)
    y = rng.random(20000) < 0.7 * p
    low, high = metrics.smece_interval(y, p, draws=50)
    assert metrics.smece(y, p) == pytest.approx(0.15, abs=0.015)
    assert (low, high) == pytest.approx((0.15, 0.15), abs=0.02)
    few = metrics.smece_interval(y[:100], p[:100])
    copies = metrics.smece_interval(
        np.repeat(y[:100], 9), np.repeat(p[:100], 9), np.repeat(np.arange(100), 9)
    )
    assert copies == pytest.approx(few, abs=3e-3)


def test_few_groups_have_no_interval() -> None:
    """A hundred rows of nine groups are nine draws: too few for an interval."""
    y, p = sample(0, 108)
    for count, known in ((9, False), (12, True)):
        groups = np.arange(108) % count
        for interval in (metrics.brier_interval, metrics.auroc_interval, metrics.smece_interval):
            assert np.isfinite(interval(y, p, groups)).all() == known

"""Labels beside a judge's verdicts: bounds against Clopper and Pearson, and by enumeration."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, binom

from calibration.label_selection import choose_judged, judged_strata
from calibration.prediction_powered import Judged, Strata, labels_for, powered_mean
from calibration.recalibration import fit_recalibration
from calibration.thresholds import Certificate, certify_judged

TAIL = 0.006  # three standard errors of a tail of 5% in 20,000 draws, with the last digit


def test_one_stratum_is_the_exact_binomial_interval() -> None:
    """SciPy's quantiles of the beta distribution: Clopper and Pearson (1934)."""
    found = powered_mean(Strata((33,), (40,), (1000,)))
    assert found.mean == 33 / 40
    assert found.bound == pytest.approx(beta.ppf(0.05, 33, 8), abs=0.002)
    assert found.interval[0] == pytest.approx(beta.ppf(0.025, 33, 8), abs=0.003)
    assert found.interval[1] == pytest.approx(beta.ppf(0.975, 34, 7), abs=0.003)
    assert found.worth == pytest.approx(40, abs=2)
    assert "worth none" in found.sentence or "worth 1 label" in found.sentence


@pytest.mark.parametrize(("yes", "no"), [(30, 10), (10, 2), (20, 20), (38, 2), (3, 1)])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_no_shares_of_two_strata_are_refuted_too_often(yes: int, no: int, share: float) -> None:
    """Of all outcomes, whatever the strata's shares are that make up the target; where some right
    answers refute it, more do too.
    """
    many, target = 100_000, 0.7
    rows = (round(share * many), many - round(share * many))
    refuted = np.zeros((yes + 1, no + 1), dtype=np.bool_)
    for j in range(no + 1):
        least = bisect_left(
            range(yes + 1),
            True,
            key=lambda i, j=j: Strata((i, j), (yes, no), rows).tail(target) <= 0.05,
        )
        refuted[least:, j] = True
    low, high = max(0.0, (target - 1 + share) / share), min(1.0, target / share)
    for of_yes in np.linspace(low, high, 25):
        of_no = np.clip((target - share * of_yes) / (1 - share), 0, 1)
        chance = (
            binom.pmf(range(yes + 1), yes, of_yes) @ refuted @ binom.pmf(range(no + 1), no, of_no)
        )
        assert chance <= 0.05 + TAIL


def test_a_good_judge_is_worth_labels_and_a_bad_one_is_not() -> None:
    """The same labels, in strata that tell right from wrong, and in such that do not."""
    good = powered_mean(Strata((59, 3), (60, 20), (750, 250)))
    bad = powered_mean(Strata((46, 16), (60, 20), (750, 250)))
    assert good.worth > 1.5 * good.labels
    assert bad.worth <= bad.labels + 2
    assert good.bound > bad.bound
    assert good.sentence.endswith(f"worth {good.worth - 80} labels.")
    assert bad.interval[0] < bad.bound < bad.mean < bad.interval[1]


def test_a_stratum_without_labels_may_be_all_wrong_or_all_right() -> None:
    """Nothing is known of it, however many labels the other has."""
    found = powered_mean(Strata((500, 0), (500, 0), (900, 100)))
    assert found.interval[0] < 0.92
    assert found.bound < 0.93
    assert found.interval[1] > 0.99
    assert powered_mean(Strata((0, 0), (500, 0), (900, 100))).interval[1] > 0.08


def test_more_labels_where_judge_and_threshold_disagree() -> None:
    """Probabilities are known, and the weighted mean of a drawn sample has no bias."""
    rng = np.random.default_rng(0)
    confidence, right = rng.random(600), rng.random(600) < 0.5
    says = np.where(rng.random(600) < 0.1, np.nan, right)
    strata = judged_strata(confidence, says, 0.7)
    assert set(strata[confidence >= 0.7]) == {0, 1, 2}
    assert set(strata[confidence < 0.7]) == {3, 4, 5}
    means = []
    for seed in range(200):
        drawn = choose_judged(strata, 60, random_state=seed)
        assert len(drawn.rows) == 60
        means.append((right[drawn.rows] * drawn.weights).sum() / 600)
    density = {h: drawn.probability[strata[drawn.rows] == h][0] for h in range(6)}
    assert density[1] > density[0]  # accepted, and the judge says no
    assert density[3] > density[4]  # not accepted, and the judge says yes
    assert np.mean(means) == pytest.approx(right.mean(), abs=0.01)
    with pytest.raises(ValueError, match="between 1 and the 600 rows"):
        choose_judged(strata, 601)
    with pytest.raises(ValueError, match="1, 0 or NaN"):
        judged_strata(confidence, confidence, 0.7)


def test_a_certificate_with_a_judge_is_kept_as_json_and_names_it() -> None:
    """Its counts are checked when it is read: too few right ones are refused."""
    strata = Strata((30, 5), (31, 9), (780, 220))
    found = certify_judged(strata, judge="big-1", threshold=0.7)
    assert found.threshold == 0.7
    assert "what big-1 says of 1,000" in found.sentence
    values = json.loads(json.dumps(found.to_dict()))
    assert Certificate(**values) == found
    values["strata"]["right"] = [24, 5]
    with pytest.raises(ValueError, match="certify no 70%"):
        Certificate(**values)
    with pytest.raises(ValueError, match="a judge has a name"):
        Certificate(**{**values, "judge": ""})


def test_verdicts_alone_certify_nothing() -> None:
    """A judge that says yes to all is certified by no number of verdicts, only by labels."""
    found = certify_judged(Strata((7, 0), (10, 0), (10**6, 0)), judge="yes", threshold=0.7)
    assert found.threshold is None


def test_how_many_labels_are_advised_refute_about_as_often() -> None:
    """Samples of the advised size, of strata whose shares are as measured."""
    shares, strata = np.array([0.9, 0.4]), Strata((27, 4), (30, 10), (780, 220))
    needed = labels_for(strata, 0.7, 0.95)
    assert needed is not None
    assert needed > 40
    labelled = np.round(np.array([0.75, 0.25]) * needed).astype(int)
    rng, passed = np.random.default_rng(0), 0
    for _ in range(100):
        right = rng.binomial(labelled, shares)
        passed += (
            Strata(tuple(right.tolist()), tuple(labelled.tolist()), (780, 220)).tail(0.7) <= 0.05
        )
    assert passed >= 75
    assert labels_for(Strata((15, 5), (30, 10), (780, 220)), 0.7, 0.95) is None


def test_a_recalibration_tests_the_strata_by_one_label_a_group() -> None:
    """The confidence stays; a group's second label is not counted."""
    p = np.full(60, 0.8)
    y = np.array([1] * 44 + [0] * 1 + [1] * 5 + [0] * 10)
    stratum = tuple([0] * 45 + [1] * 15)
    groups = np.array([f"g{max(i, 1)}" for i in range(60)])
    judged = Judged("big-1", stratum, (750, 250))
    found = fit_recalibration(p, y, groups, target=0.7, accepted_from=0.7, judged=judged)
    assert found.certificate.strata == Strata((43, 5), (44, 15), (750, 250))
    assert found.certificate.judge == "big-1"
    assert found.certificate.threshold == 0.7
    assert any("The judge was worth" in sentence for sentence in found.sentences())


@pytest.mark.parametrize(
    "counts",
    [
        *[((1,), (0,), (5,)), ((0,), (0,), (5,)), ((1, 0), (1,), (5,)), ((1,), (6,), (5,))],
        ((10**30, 1),) * 3,
        ((1,) * 200_000,) * 3,  # 32 GB of draws
    ],
)
def test_counts_that_no_sample_has_are_refused(counts: tuple[tuple[int, ...], ...]) -> None:
    """More right than labelled, more labelled than there are, none, unequal lengths, too many."""
    with pytest.raises(ValueError, match="expected"):
        Strata(*counts)


@pytest.mark.parametrize("stated", [{"right": 0}, {"queries": 5, "accepted": 5, "right": 5}])
def test_a_certificate_states_the_counts_of_its_strata(stated: dict[str, int]) -> None:
    """What a reader is told is what the bound was computed from."""
    found = certify_judged(Strata((59, 30), (60, 40), (750, 250)), judge="it", threshold=0.7)
    with pytest.raises(ValueError, match="certify no"):
        replace(found, **stated)  # type: ignore[arg-type]

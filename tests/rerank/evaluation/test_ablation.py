"""What fewer features and fewer labels give, in worlds where it is known what they carry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration import metrics
from calibration.arrays import sigmoid
from calibration.fitting import Penalty, fit_logistic, fit_two_stage
from calibration.maps import LogisticMap
from rerank.assessment.fitted_maps import features_of
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES
from rerank.evaluation.ablation import (
    BUDGETS,
    SUBSETS,
    Budgets,
    Examples,
    Trial,
    by_features,
    by_labels,
    columns_by_step,
)
from rerank.types import OWN_STAGES

ONE = Penalty(1.0)
COLUMNS = {"noise": [0], "+ signal": [0, 1], "+ more noise": [0, 1, 2]}


def world(n: int, seed: int) -> Examples:
    """Three features of which only the second one tells right from wrong; two rows a group."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    right = (rng.random(n) < sigmoid(2 * X[:, 1])).astype(np.int64)
    return Examples(X, right, tuple(f"group {i // 2}" for i in range(n)))


FITTED, MEASURED = world(240, 1), world(400, 2)
TRIAL = Trial(FITTED, MEASURED)
OTHERS = world(4000, 3)
POOLED = fit_logistic(OTHERS.features, OTHERS.right)  # of more labels than are fitted on


def test_steps_add_one_group_of_features_after_the_other() -> None:
    """The first step is the first group, the last one all features, none twice."""
    found = columns_by_step(features_of(OWN_STAGES))
    assert list(found) == [name if i == 0 else f"+ {name}" for i, name in enumerate(GROUPS)]
    place = list(RANKING_FEATURES)
    assert {place[i] for i in found["logits"]} == set(GROUPS["logits"])
    assert list(found.values())[-1] == list(range(len(RANKING_FEATURES)))
    before: set[int] = set()
    for columns in found.values():
        assert before < set(columns)
        assert len(set(columns)) == len(columns)
        before = set(columns)


def test_only_the_step_with_the_signal_gains() -> None:
    """Noise saves nothing, the feature that tells saves much, more noise gains nothing on it."""
    noise, signal, more = by_features([TRIAL], columns=COLUMNS)
    assert [step.features for step in (noise, signal, more)] == [1, 2, 3]
    assert abs(noise.saved) < 0.02
    assert signal.saved_interval[0] > 0.1
    assert signal.saved == pytest.approx(noise.saved + signal.gain, abs=1e-12)
    assert signal.gain_interval[0] > 0.1
    assert more.gain_interval[0] < 0.01
    assert noise.auroc_interval[0] < 0.55
    assert signal.auroc_interval[0] > 0.75
    assert np.isnan(noise.gain)


@pytest.mark.parametrize("reference", [None, POOLED])
def test_the_last_step_is_the_models_own_confidence(reference: LogisticMap | None) -> None:
    """With all columns it is what fitting on everything gives, measured by the usual metrics."""
    last = by_features([replace(TRIAL, reference=reference)], columns=COLUMNS)[-1]
    own, penalty, _ = fit_two_stage(
        FITTED.features, FITTED.right, FITTED.groups, reference=reference
    )
    p = own.predict(MEASURED.features)
    assert last.log_loss == metrics.log_loss(MEASURED.right, p)
    assert last.auroc == metrics.auroc(MEASURED.right, p)
    assert last.penalties == (penalty,)
    trial = replace(TRIAL, reference=reference)
    (all_labels,) = by_labels([trial], threshold=0.7, penalties=[penalty]).log_loss[-1:, 0]
    assert all_labels == last.log_loss  # the last dot is the model, signs included
    base = np.full(len(p), MEASURED.right.mean())
    assert last.saved == pytest.approx(metrics.log_loss(MEASURED.right, base) - last.log_loss)


def test_a_query_without_passages_has_confidence_0() -> None:
    """A row of zeros counts as never accepted and wrong, as it does in the model itself."""
    empty = replace(MEASURED, features=np.zeros((400, 3)), right=np.zeros(400, dtype=np.int64))
    (step,) = by_features([Trial(FITTED, empty)], columns={"signal": [1]})
    assert step.log_loss < 1e-5
    found = by_labels([Trial(FITTED, empty)], threshold=0.1, penalties=[ONE])
    assert not found.accepted.any()
    assert np.isnan(found.accepted_right).all()


@pytest.fixture(scope="module")
def budgets() -> Budgets:
    """What fewer labels give in the world above."""
    return by_labels([TRIAL], threshold=0.7, penalties=[ONE])


def test_budgets_end_with_all_labels(budgets: Budgets) -> None:
    """A row for each budget below the number of labels, then one for all, without spread."""
    assert budgets.labels == (*[b for b in BUDGETS if b < 240], 240)
    assert budgets.log_loss.shape == (len(budgets.labels), SUBSETS)
    own, _, _ = fit_two_stage(FITTED.features, FITTED.right, FITTED.groups, C=1.0)
    whole = own.predict(MEASURED.features)
    assert set(budgets.log_loss[-1]) == {metrics.log_loss(MEASURED.right, whole)}
    assert set(budgets.accepted[-1]) == {metrics.coverage(whole, 0.7)}
    assert (np.ptp(budgets.log_loss[:-1], axis=1) > 0).all()


def test_more_labels_are_worth_more(budgets: Budgets) -> None:
    """Where there is something to learn, log loss falls with the budget, and its spread too."""
    middle = np.median(budgets.log_loss, axis=1)
    assert middle[0] > middle[2]
    assert np.ptp(budgets.log_loss[0]) > np.ptp(budgets.log_loss[2])


def test_few_labels_are_shrunk_towards_pooled_maps_as_the_model_is(budgets: Budgets) -> None:
    """Fitted without them, few labels would look worse than they are."""
    trial = replace(TRIAL, reference=POOLED)
    reference = by_labels([trial], threshold=0.7, penalties=[Penalty(0.2, keep_signs=True)])
    good = metrics.log_loss(MEASURED.right, POOLED.predict(MEASURED.features))
    assert np.median(reference.log_loss[0]) < good + 0.01 < np.median(budgets.log_loss[0])


def test_subsets_hold_whole_groups() -> None:
    """Rows of a group come together, so that few labels of large groups are few groups."""
    twins = replace(FITTED, groups=tuple("ab"[i % 2] for i in range(240)))
    found = by_labels([Trial(twins, MEASURED)], threshold=0.7, penalties=[ONE])
    # 50 and 100 labels are all of one group, with which nothing can be cross-fitted: a constant
    assert set(found.accepted[:2].ravel()) <= {0.0, 1.0}


def test_few_labels_fall_back_to_the_simple_second_stage(budgets: Budgets) -> None:
    """Isotonic from 1,000 labels up only, as in the choice of the calibrator itself."""
    bent = by_labels([replace(TRIAL, second_stage="isotonic")], threshold=0.7, penalties=[ONE])
    np.testing.assert_array_equal(budgets.log_loss, bent.log_loss)


def test_another_seed_draws_other_subsets(budgets: Budgets) -> None:
    """All labels stay all labels; only the folds of the fit differ."""
    other = by_labels([TRIAL], threshold=0.7, penalties=[ONE], random_state=1)
    assert (budgets.log_loss[:-1] != other.log_loss[:-1]).any()
    np.testing.assert_allclose(budgets.log_loss[-1], other.log_loss[-1], rtol=0.01)


def test_rows_measured_in_folds_are_measured_once_each() -> None:
    """Of two trials each row is measured by the one that it is of, as if that were alone."""
    halves = [Trial(world(240, k), world(200, k + 10)) for k in (1, 2)]
    (both,) = by_features(halves, columns={"signal": [1]})
    alone = [by_features([trial], columns={"signal": [1]})[0] for trial in halves]
    assert both.log_loss == pytest.approx(np.mean([step.log_loss for step in alone]))
    assert both.penalties == alone[0].penalties + alone[1].penalties
    found = by_labels(halves, threshold=0.7, penalties=[ONE, ONE])
    assert found.labels == (50, 100, 200, 240)

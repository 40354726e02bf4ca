"""What fewer features, or fewer labels, would have given: the confidence refitted without them.

Features with labels in, small frozen results out. Only the confidence is refitted: the order of the
passages, and so which queries are right, stays that of the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration import metrics
from calibration.effective import design_effect
from calibration.selection import codes, enough_rows, row_losses
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES
from rerank.data.labels import Labels
from rerank.evaluation.ranking_metrics import paired_bootstrap
from rerank.types import Floats

BUDGETS = (50, 100, 200, 500, 1000)  # labelled queries
SUBSETS = 7  # drawn of each budget

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Examples:
    """Labelled rows: features (n, d), whether the top passage is right (n,), and groups (n,)."""

    features: Floats
    right: Labels
    groups: Sequence[str] | NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Step:
    """A confidence of some of the features, measured; 95 % intervals by query group.

    `saved` is the log loss less than that of the base rate, in nats a query; `gain` what the step
    saves more than the step before it, paired by query (NaN for the first); `penalty` the C that
    was chosen for it.
    """

    name: str
    features: int
    log_loss: float
    auroc: float
    auroc_interval: Interval
    saved: float
    saved_interval: Interval
    gain: float
    gain_interval: Interval
    penalty: float


@dataclass(frozen=True, slots=True)
class Budgets:
    """Confidences of some of the labels, measured: a row a budget, a column a subset.

    The last budget is all labels, its row one number repeated. `accepted` is the share of the
    queries that reach the threshold, `accepted_right` the share of those that is right, NaN where
    none does.
    """

    labels: tuple[int, ...]
    threshold: float
    log_loss: Floats
    smece: Floats
    accepted: Floats
    accepted_right: Floats


def steps() -> dict[str, list[int]]:
    """The columns of each step: those of a group of features, and of all groups before it."""
    place = {name: i for i, name in enumerate(RANKING_FEATURES)}
    found: dict[str, list[int]] = {}
    taken: list[int] = []
    for group, names in GROUPS.items():
        taken = sorted([*taken, *(place[name] for name in names)])
        found[f"+ {group}" if found else group] = taken
    return found


def by_features(
    fitted_on: Examples,
    measured_on: Examples,
    *,
    columns: Mapping[str, Sequence[int]],
    then: str = "logistic",
    folds: int = 5,
    random_state: int = 0,
) -> tuple[Step, ...]:
    """The confidence of each set of columns, fitted on the one part and measured on the other.

    Each is fitted as the model's own is (`calibration.fitting.fit_two_stage`).
    """
    from calibration.fitting import fit_two_stage

    y, groups = measured_on.right, list(measured_on.groups)
    base = row_losses(y, np.full(len(y), y.mean()))
    before, found = np.full(len(y), np.nan), []
    for name, taken in columns.items():
        learned, penalty, _ = fit_two_stage(
            fitted_on.features[:, taken],
            fitted_on.right,
            fitted_on.groups,
            then=then,
            folds=folds,
            random_state=random_state,
        )
        p = _predict(learned, measured_on.features, taken)
        losses = row_losses(y, p)
        saved, *saved_interval = paired_bootstrap(base, losses, groups, seed=random_state)
        gain, *gain_interval = paired_bootstrap(before, losses, groups, seed=random_state)
        found.append(
            Step(
                name,
                len(taken),
                float(losses.mean()),
                metrics.auroc(y, p),
                metrics.auroc_interval(y, p, groups),
                saved,
                (saved_interval[0], saved_interval[1]),
                gain,
                (gain_interval[0], gain_interval[1]),
                penalty,
            )
        )
        before = losses
    return tuple(found)


def by_labels(
    fitted_on: Examples,
    measured_on: Examples,
    *,
    whole: Floats,
    threshold: float,
    penalty: float,
    then: str = "logistic",
    folds: int = 5,
    random_state: int = 0,
) -> Budgets:
    """The confidence of fewer labels: of each of `BUDGETS` that is less than all, and of all.

    `whole` (n,) are the confidences of all labels on `measured_on`. Subsets are drawn by group, the
    last one cut; a larger one holds the smaller one of its draw. `penalty` is the C that all labels
    chose: choosing it anew for each subset costs seven times as much, for medians within 0.015.
    `then` gives way to a logistic second stage where the labels are too few for it.
    """
    from calibration.fitting import fit_two_stage

    X, y = fitted_on.features, fitted_on.right
    number, rng = codes(fitted_on.groups, len(y)), np.random.default_rng(random_state)
    drawn = [_by_group(number, rng) for _ in range(SUBSETS)]
    labels = tuple(size for size in BUDGETS if size < len(y))
    worth = 1 / design_effect(y - y.mean(), number)
    found = []
    for size in labels:
        stage = then if enough_rows(then, size * worth) else "logistic"
        for order in drawn:
            rows = order[:size]
            learned, _, _ = fit_two_stage(
                X[rows],
                y[rows],
                number[rows],
                then=stage,
                folds=folds,
                C=penalty,
                random_state=random_state,
            )
            p = _predict(learned, measured_on.features, range(X.shape[1]))
            found.append(_measured(measured_on.right, p, threshold))
    found += [_measured(measured_on.right, whole, threshold)] * SUBSETS
    table = np.array(found).reshape(len(labels) + 1, SUBSETS, 4)
    return Budgets((*labels, len(y)), threshold, *np.moveaxis(table, 2, 0))


def _predict(learned: Any, features: Floats, columns: Sequence[int]) -> Floats:
    """Confidences (n,); 0 for a row of zeros, which is a ranking without passages."""
    p = learned.predict(features[:, columns])
    return np.where(features.any(axis=1), p, 0.0)


def _by_group(number: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows, group by group in a random order of the groups."""
    place = rng.permutation(int(number.max()) + 1)
    return np.argsort(place[number], kind="stable")


def _measured(y: Labels, p: Floats, threshold: float) -> tuple[float, ...]:
    return (
        metrics.log_loss(y, p),
        metrics.smece(y, p),
        metrics.coverage(p, threshold),
        metrics.selective_accuracy(y, p, threshold),
    )

"""Ablation: the confidence refitted on fewer features, or on fewer labels.

Only the confidence is refitted: the order of the passages, and so which queries are right, stays
that of the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibration import metrics
from calibration.arrays import group_codes
from calibration.maps import LogisticMap
from calibration.metrics.intervals import Interval, design_effect, student_interval
from calibration.metrics.scores import row_losses
from calibration.selection import enough_rows
from rerank.assessment.fitted_maps import Features
from rerank.data.labels import Labels
from rerank.types import Floats

if TYPE_CHECKING:
    from calibration.fitting import Penalty

BUDGETS = (50, 100, 200, 500, 1000)  # labelled queries
SUBSETS = 7  # drawn for each budget


@dataclass(frozen=True, slots=True)
class Examples:
    """Labelled rows: features (n, d), whether the top passage is right (n,), and groups (n,)."""

    features: Floats
    right: Labels
    groups: Sequence[str] | NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Trial:
    """Rows to fit on and to measure on (one fold), which share no group, and how to fit."""

    fitted_on: Examples
    measured_on: Examples
    second_stage: str = "logistic"  # how the logit becomes a probability
    reference: LogisticMap | None = None  # the pooled map of all features to shrink towards


@dataclass(frozen=True, slots=True)
class Step:
    """Measurements of a confidence from some of the features; 95% intervals by query group."""

    name: str
    features: int
    log_loss: float
    auroc: float
    auroc_interval: Interval
    saved: float  # log loss of the base rate minus that of the step, nats per query
    saved_interval: Interval
    gain: float  # saved more than by the step before, paired by query; NaN for the first
    gain_interval: Interval
    penalties: tuple[Penalty, ...]  # chosen in each trial


@dataclass(frozen=True, slots=True)
class Budgets:
    """Measurements of confidences from some of the labels: (budgets, subsets) each."""

    labels: tuple[int, ...]  # the last budget is all labels, its row one number repeated
    threshold: float
    log_loss: Floats
    smece: Floats
    accepted: Floats  # share of the queries that reach the threshold
    accepted_right: Floats  # share of those that is right; NaN if there are none


def columns_by_step(features: Features) -> dict[str, list[int]]:
    """The columns of each step: those of a group of features, and of all groups before it."""
    place = {name: i for i, name in enumerate(features.ranking)}
    columns: dict[str, list[int]] = {}
    so_far: list[int] = []
    for group, names in features.groups.items():
        so_far = sorted([*so_far, *(place[name] for name in names)])
        columns[f"+ {group}" if columns else group] = so_far
    return columns


def by_features(
    trials: Sequence[Trial],
    *,
    columns: Mapping[str, Sequence[int]],
    folds: int = 5,
    random_state: int = 0,
) -> tuple[Step, ...]:
    """The confidence of each set of columns, fitted and measured in every trial.

    Each is fitted like the model's own (`calibration.fitting.fit_two_stage`), with the weights of
    these columns of a pooled map, and without the corrections of segments.
    """
    from calibration.fitting import fit_two_stage

    y = np.concatenate([trial.measured_on.right for trial in trials])
    groups = [str(group) for trial in trials for group in trial.measured_on.groups]
    base = row_losses(y, np.full(len(y), y.mean()))
    previous, measured = np.full(len(y), np.nan), []
    for name, used in columns.items():
        predicted, penalties = [], []
        for trial in trials:
            rows = trial.fitted_on
            fitted, penalty, _ = fit_two_stage(
                rows.features[:, used],
                rows.right,
                rows.groups,
                second_stage=trial.second_stage,
                folds=folds,
                random_state=random_state,
                reference=_keep_columns(trial.reference, used),
            )
            predicted.append(_predict(fitted, trial.measured_on.features, used))
            penalties.append(penalty)
        p = np.concatenate(predicted)
        losses = row_losses(y, p)
        saved = student_interval(base - losses, groups, unseen=1.0)  # nat
        gain = student_interval(previous - losses, groups, unseen=1.0)
        measured.append(
            Step(
                name=name,
                features=len(used),
                log_loss=float(losses.mean()),
                auroc=metrics.auroc(y, p),
                auroc_interval=metrics.auroc_interval(y, p, groups),
                saved=saved.mean,
                saved_interval=saved.interval,
                gain=gain.mean,
                gain_interval=gain.interval,
                penalties=tuple(penalties),
            )
        )
        previous = losses
    return tuple(measured)


def by_labels(
    trials: Sequence[Trial],
    *,
    threshold: float,
    penalties: Sequence[Penalty],
    folds: int = 5,
    random_state: int = 0,
) -> Budgets:
    """The confidence fitted on fewer labels: on each of `BUDGETS` below the total, and on all.

    Subsets are drawn by group, the last one cut; a larger one contains the smaller ones of its
    draw. `penalties` are those chosen on all labels of each trial: choosing again takes seven times
    as long, and medians stay within 0.015. With too few labels the second stage is logistic.
    """
    from calibration.fitting import fit_two_stage

    y = np.concatenate([trial.measured_on.right for trial in trials])
    total = min(len(trial.fitted_on.right) for trial in trials)
    labels = tuple(size for size in BUDGETS if size < total)
    numbers = [group_codes(trial.fitted_on.groups, len(trial.fitted_on.right)) for trial in trials]
    drawn = [_random_orders(number, random_state) for number in numbers]

    def figures_of(subset: int, size: int | None) -> tuple[float, ...]:
        """What the first `size` labels of a draw give; None: all of them."""
        parts = []
        for trial, orders, number, penalty in zip(trials, drawn, numbers, penalties, strict=True):
            rows, given = np.sort(orders[subset][:size]), trial.fitted_on
            n_effective = len(rows) / design_effect(given.right - given.right.mean(), number)
            enough = enough_rows(trial.second_stage, n_effective)
            fitted, _, _ = fit_two_stage(
                given.features[rows],
                given.right[rows],
                number[rows],
                second_stage=trial.second_stage if enough else "logistic",
                folds=folds,
                C=penalty,
                random_state=random_state,
                reference=trial.reference,
            )
            parts.append(_predict(fitted, trial.measured_on.features))
        p = np.concatenate(parts)
        reached = metrics.coverage(p, threshold), metrics.selective_accuracy(y, p, threshold)
        return metrics.log_loss(y, p), metrics.smece(y, p), *reached

    figures = [figures_of(subset, size) for size in labels for subset in range(SUBSETS)]
    figures += [figures_of(0, None)] * SUBSETS
    table = np.array(figures).reshape(len(labels) + 1, SUBSETS, 4)
    return Budgets((*labels, total), threshold, *np.moveaxis(table, 2, 0))


def _keep_columns(old: LogisticMap | None, used: Sequence[int]) -> LogisticMap | None:
    """The map with the weights of some features only: the others are taken to be at their mean."""
    if old is None:
        return None
    names = ("coef", "mean", "scale", *(("low", "high") if old.low else ()))
    chosen: dict[str, Any] = {n: tuple(getattr(old, n)[i] for i in used) for n in names}
    return replace(old, **chosen)


def _random_orders(number: NDArray[np.int64], random_state: int) -> list[NDArray[np.int64]]:
    """`SUBSETS` orders of rows (n,), group by group; a subset is the first rows of one."""
    rng, groups = np.random.default_rng(random_state), int(number.max()) + 1
    places = (rng.permutation(groups) for _ in range(SUBSETS))
    return [np.argsort(place[number], kind="stable") for place in places]


def _predict(fitted: Any, features: Floats, used: Sequence[int] | slice = slice(None)) -> Floats:
    """Confidences (n,) from these columns; 0 for a row of zeros, which has no passages."""
    return np.where(features.any(axis=1), fitted.predict(features[:, used]), 0.0)

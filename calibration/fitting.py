"""Features to one logit, and that logit to a probability: the mathematics of the two stages.

Features and labels of 0 and 1 in, a value of `calibration.maps` out. Every fit takes X (n, d) or
scores (n,), and y (n,); C is above 0, and `folds` at least 2. `calibrators` wraps it.

If there is nothing to learn (labels of one class only, fewer than two groups to cross-fit), a fit
without a reference map gives a constant, the smoothed base rate; one with it stays close to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from calibration import arrays
from calibration.arrays import Codes, Floats, Groups, Ints
from calibration.effective_sample_size import effective_n
from calibration.maps import LogisticMap, TwoStageMap
from calibration.metrics.scores import row_losses
from calibration.score_fitting import SCORE_FITS, base_rate, maximum_likelihood, weighted
from calibration.selection import grouped_folds, held_out, one_standard_error
from calibration.shrinkage import STRONG, VERY_STRONG, fit_bounded_update, fit_shrunk

# the grid of C that `TwoStageCalibrator` chooses from, strongest penalty first
PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Penalty(NamedTuple):
    """How strongly a first stage is shrunk: see `fit_logistic` and `fit_shrunk`."""

    C: float
    keep_signs: bool = False  # with a reference map: whether no weight changes its sign


# the grid with a reference map, smallest steps first; chosen by evaluation on left-out sets, see
# `docs/experiments.md`
STEPS = tuple(Penalty(C, keep) for keep in (True, False) for C in (0.2, 0.6, 2.0, 6.0))


def fit_logistic(
    X: ArrayLike, y: ArrayLike, *, C: float = 1.0, sample_weight: ArrayLike | None = None
) -> LogisticMap:
    """Return the ridge-penalised logistic regression of y (n,) on X (n, d), features standardised.

    The optimum is that of scikit-learn's `LogisticRegression(C=C)`, whose penalty is
    |coef|^2 / (2 C), by Newton's method. The map clips each feature to its range in X; a constant
    column gets coefficient 0.
    """
    x, labels, w = weighted(arrays.as_features(X), y, sample_weight)
    if not C > 0:
        raise ValueError(f"C must be positive, got {C}")
    return _fit_logistic(x, labels, C, w)


def _fit_logistic(x: Floats, labels: Ints, C: float, weights: Floats | None = None) -> LogisticMap:
    w = arrays.as_weights(weights, len(x))
    scaler = StandardScaler().fit(x, sample_weight=None if (w == 1).all() else w)
    mean, scale = tuple(scaler.mean_), tuple(scaler.scale_)
    if labels.min() == labels.max():
        constant = float(arrays.logit(base_rate(labels, w)))
        return LogisticMap((0.0,) * x.shape[1], constant, mean, scale)
    n, d = x.shape
    design = np.column_stack([(x - scaler.mean_) / scaler.scale_, np.ones(n)])
    precision, y = np.append(np.full(d, 1 / C), 0.0), labels.astype(np.float64)
    fitted = maximum_likelihood(design, y, np.zeros(d + 1), precision=precision, sample_weight=w)
    coef = np.where(np.ptp(x, axis=0) > 0, fitted[:-1], 0.0)
    low, high = tuple(x.min(axis=0)), tuple(x.max(axis=0))
    return LogisticMap(tuple(coef), float(fitted[-1]), mean, scale, low, high)


def _fit_first(
    x: Floats, labels: Ints, number: Ints, penalty: Penalty, reference: LogisticMap | None
) -> LogisticMap:
    """Shrunk to the reference map if there is one, else to zero."""
    if reference is None:
        return _fit_logistic(x, labels, penalty.C)
    return fit_shrunk(reference, x, labels, number, C=penalty.C, keep_signs=penalty.keep_signs)


def _choose_step(losses: Floats, number: Codes) -> int:
    """Which of `STEPS` to take, by the out-of-fold losses (steps, n): the first if in doubt."""
    keeping = sum(step.keep_signs for step in STEPS)
    for steps, evidence in ((len(losses), VERY_STRONG), (keeping, STRONG)):
        best = one_standard_error(losses[:steps], number)
        gain = losses[0] - losses[best]
        if gain.mean() * effective_n(gain, number) > evidence:
            return best
    return 0


def fit_first_stage(
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    folds: int = 5,
    C: float | Penalty | None = None,
    random_state: int = 0,
    reference: LogisticMap | None = None,
) -> tuple[LogisticMap, Penalty, Floats]:
    """Return the logistic map of X (n, d), its penalty, and its out-of-fold logits (n,).

    If C is None, it is the strongest penalty of `PENALTIES` within one standard error of the lowest
    grouped cross-validated log loss. The map is refitted on all rows. Without a reference, with
    fewer than two groups or labels of one class, it is a constant.

    With a `reference` map, the fit is `fit_shrunk`, and C, from `STEPS`, is the variance of each
    step away from the old map. A larger step than the smallest is used only if its cross-validated
    gain is `STRONG` evidence, which few labels cannot give. A step that may change signs of weights
    needs `VERY_STRONG` evidence: most changes of sign are chance, and a weight of the wrong sign
    gives the user a wrong reason. A C that is a number keeps the signs.

    Without a reference, the out-of-fold logits are those of maps moved to one level, the mean logit
    of the map that is returned. A fold with few right rows is left to a map of many, which has a
    high intercept: with few labels the intercepts, which run against the labels, would hide what
    the features say.
    """
    if folds < 2:
        raise ValueError(f"expected at least two folds, got {folds}")
    x = arrays.as_features(X)
    labels = arrays.as_labels(y, len(x))
    number = arrays.group_codes(groups, len(labels))
    fold = grouped_folds(number, folds, random_state=random_state)
    penalties: Sequence[Penalty] = STEPS if reference else [Penalty(each) for each in PENALTIES]
    if C is not None:
        penalties = [C if isinstance(C, Penalty) else Penalty(C, keep_signs=True)]
        if not penalties[0].C > 0:
            raise ValueError(f"C must be positive, got {C}")
    if reference is not None and fold.max() == 0:
        first = _fit_first(x, labels, number, penalties[0], reference)
        return first, penalties[0], reference.logit(x)
    if reference is None and (fold.max() == 0 or labels.min() == labels.max()):
        flat = _fit_logistic(x, np.zeros_like(labels), penalties[0].C)
        first = replace(flat, intercept=float(arrays.logit(base_rate(labels))))
        return first, penalties[0], np.full(len(x), first.intercept)
    # by maps fitted without the row's fold, and the mean logits of the rows that these saw
    logits, levels = np.empty((2, len(penalties), len(x)))
    with threadpool_limits(limits=1):  # the matrices are small: threads only wait for each other
        for held in held_out(fold):
            for i, each in enumerate(penalties):
                fitted = _fit_first(x[~held], labels[~held], number[~held], each, reference)
                logits[i, held] = fitted.logit(x[held])
                levels[i, held] = fitted.logit(x[~held]).mean()
    losses = np.array([row_losses(labels, arrays.sigmoid(row)) for row in logits])
    best = one_standard_error(losses, number) if reference is None else _choose_step(losses, number)
    first = _fit_first(x, labels, number, penalties[best], reference)
    if reference is not None:
        return first, penalties[best], logits[best]
    return first, penalties[best], logits[best] - levels[best] + first.logit(x).mean()


def fit_two_stage(
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    second_stage: str = "logistic",
    folds: int = 5,
    C: float | Penalty | None = None,
    random_state: int = 0,
    reference: LogisticMap | None = None,
) -> tuple[TwoStageMap, Penalty, Floats]:
    """Return the two-stage map, its first stage's penalty and out-of-fold logits (n,).

    The first stage is `fit_first_stage`. The second, `SCORE_FITS[second_stage]`, is fitted on the
    grouped out-of-fold logits of the first. With a `reference` map, the second stage named logistic
    is an update shrunk towards no change, so both stages keep the old map where labels say nothing
    else.
    """
    fit = _second_stage(second_stage, reference)
    first, penalty, out = fit_first_stage(
        X, y, groups, folds=folds, C=C, random_state=random_state, reference=reference
    )
    return TwoStageMap(first, fit(out, y, groups)), penalty, out


def cross_fit_two_stage(
    second_stages: Sequence[str],
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    folds: int = 5,
    C: float | Penalty | None = None,
    random_state: int = 0,
    reference: LogisticMap | None = None,
) -> dict[str, Floats]:
    """Return (n,) out-of-fold probabilities by the name of the second stage.

    Each row's probability comes from two stages fitted without the row's group; all second stages
    share the first.

    Raises:
        ValueError: as `fit_two_stage`; fewer than two groups.
    """
    fits = {name: _second_stage(name, reference) for name in second_stages}
    x = arrays.as_features(X)
    labels = arrays.as_labels(y, len(x))
    number = arrays.group_codes(groups, len(labels))
    fold = grouped_folds(number, folds, random_state=random_state)
    result = {name: np.empty(len(labels)) for name in second_stages}
    for held in held_out(fold):
        first, _, out = fit_first_stage(
            x[~held],
            labels[~held],
            number[~held],
            folds=folds,
            C=C,
            random_state=random_state,
            reference=reference,
        )
        for name, fit in fits.items():
            second = fit(out, labels[~held], number[~held])
            result[name][held] = TwoStageMap(first, second).predict(x[held])
    return result


def _second_stage(second_stage: str, reference: LogisticMap | None) -> Callable[..., Any]:
    """Return the fit of the second stage: a function of logits, labels and groups."""
    if second_stage not in SCORE_FITS:
        kinds = ", ".join(SCORE_FITS)
        raise ValueError(f"second_stage must be one of {kinds}, got {second_stage!r}")
    if reference is not None and second_stage == "logistic":
        return fit_bounded_update
    fit = SCORE_FITS[second_stage]
    return lambda scores, y, groups: fit(scores, y)

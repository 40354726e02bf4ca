"""Features to one logit, and that logit to a probability: the mathematics of the two stages.

Features and labels of 0 and 1 in, a value of `calibration.maps` out. Every fit takes X (n, d) or
scores (n,), and y (n,), which are checked once, as `Rows`; C is above 0, and `folds` at least 2.

If there is nothing to learn (labels of one class only, fewer than two groups to cross-fit), a fit
without a reference map gives a constant, the smoothed base rate. A map shrunk towards a reference
map is its logit times a, plus b, plus a step for each feature; all three are shrunk towards no
change (a = 1, b = 0, no step), so few labels move the old map little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from calibration import arrays, score_fitting, selection
from calibration.arrays import Bools, Codes, Floats, Groups, Ints
from calibration.maps import LogisticMap, ScoreMap, TwoStageMap
from calibration.metrics.intervals import design_effect, effective_n
from calibration.metrics.scores import row_losses
from calibration.score_fitting import SCORE_FITS, base_rate, log_evidence, maximum_likelihood

# the grid of C that `TwoStageCalibrator` chooses from, strongest penalty first
PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
# standard deviations of a and b of an update, before labels
SLOPE_SPREAD, INTERCEPT_SPREAD = 0.25, 0.5
# standard deviation of b where the old map is of other sets: their shares of hits differ more
OF_ANOTHER_SET = 1.0
# effective number of labels behind an old map, for bounds on probabilities and features
OLD_EFFECTIVE_N = 50
MIN_SLOPE = 0.05  # lowest slope of an update of log odds: below 0 it would reverse the order
# how many times wider the prior of an update is if the labels are strong evidence for it
WIDER = 4.0

# nats that are strong evidence, about 20 to 1, and very strong, 150 to 1 (Kass & Raftery 1995)
STRONG, VERY_STRONG = 3.0, 5.0


class Penalty(NamedTuple):
    """How strongly a first stage is shrunk: see `fit_logistic` and `fit_shrunk`."""

    C: float
    keep_signs: bool = False  # with a reference map: whether no weight changes its sign


# the grid with a reference map, smallest steps first; chosen by evaluation on left-out sets, see
# `docs/experiments.md`
STEPS = tuple(Penalty(C, keep) for keep in (True, False) for C in (0.2, 0.6, 2.0, 6.0))


class Rows(NamedTuple):
    """Checked features (n, d), labels (n,), and numbers of groups (n,)."""

    x: Floats
    y: Ints
    number: Codes

    @classmethod
    def of(cls, X: ArrayLike, y: ArrayLike, groups: Groups = None, width: int = 0) -> Rows:
        """The rows, checked; `width` is that of `as_features`."""
        x = arrays.as_features(X, width or None)
        return cls(x, arrays.as_labels(y, len(x)), arrays.group_codes(groups, len(x)))

    def where(self, chosen: Bools) -> Rows:
        """The rows at which `chosen` (n,) is True; their groups are numbered from 0."""
        number = np.unique(self.number[chosen], return_inverse=True)[1].astype(np.int64)
        return Rows(self.x[chosen], self.y[chosen], Codes(number))


def fit_logistic(
    X: ArrayLike, y: ArrayLike, *, C: float = 1.0, sample_weight: ArrayLike | None = None
) -> LogisticMap:
    """Return the ridge-penalised logistic regression of y (n,) on X (n, d), features standardised.

    The optimum is that of scikit-learn's `LogisticRegression(C=C)`, by Newton's method. The map
    clips each feature to its range in X; a constant column gets coefficient 0.
    """
    x, labels, w = score_fitting.weighted(arrays.as_features(X), y, sample_weight)
    return _fit_logistic(x, labels, _positive(C), None if (w == 1).all() else w)


def _positive(C: float) -> float:
    if not C > 0:
        raise ValueError(f"C must be positive, got {C}")
    return C


def _fit_logistic(
    x: Floats, y: Ints, C: float, weights: Floats | None = None, *, constant: bool = False
) -> LogisticMap:
    """`fit_logistic`; the base rate, if y has one class, or if it should be `constant`."""
    scaler = StandardScaler().fit(x, sample_weight=weights)
    mean, scale, (n, d) = tuple(scaler.mean_), tuple(scaler.scale_), x.shape
    w: ArrayLike = 1.0 if weights is None else weights
    if constant or y.min() == y.max():
        return LogisticMap((0.0,) * d, float(arrays.logit(base_rate(y, w))), mean, scale)
    design = np.column_stack([(x - scaler.mean_) / scaler.scale_, np.ones(n)])
    precision, hits = np.append(np.full(d, 1 / C), 0.0), y.astype(np.float64)
    fitted = maximum_likelihood(design, hits, np.zeros(d + 1), precision=precision, sample_weight=w)
    coef = np.where(np.ptp(x, axis=0) > 0, fitted[:-1], 0.0)
    low, high = tuple(x.min(axis=0)), tuple(x.max(axis=0))
    return LogisticMap(tuple(coef), float(fitted[-1]), mean, scale, low, high)


def fit_shrunk(
    reference: LogisticMap,
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    C: float,
    keep_signs: bool = False,
) -> LogisticMap:
    """Return sigmoid(a z + b + delta @ x): z the logit of `reference`, x its standardised features.

    Maximum a posteriori with Gaussian priors: a around 1 and b around 0 with the standard
    deviations `SLOPE_SPREAD` and `OF_ANOTHER_SET`, each delta around 0 with variance C, as in a
    ridge penalty. The log likelihood is divided by the design effect in groups (n,) of
    y - sigmoid(z) around its mean, which the intercept corrects. Labels may be of one class. With
    `keep_signs` each weight has the sign that it has in `reference`, or is 0 (Meinshausen 2013,
    "Sign-constrained least squares estimation for high-dimensional regression").

    The features are clipped to the mean of the ranges of these rows and of `reference`, weighted by
    their effective numbers of labels, `OLD_EFFECTIVE_N` for `reference`; without a range there,
    they are not clipped.
    """
    rows = Rows.of(X, y, groups, len(reference.coef))
    return _fit_shrunk(reference, rows, Penalty(_positive(C), keep_signs))


def _fit_shrunk(reference: LogisticMap, rows: Rows, penalty: Penalty) -> LogisticMap:
    z, x = reference.logit_and_standardised(rows.x)
    n, d = x.shape
    design = np.column_stack([z, np.ones(n), x])
    steps = np.full(d, 1 / penalty.C)
    precision = np.array([SLOPE_SPREAD**-2, OF_ANOTHER_SET**-2, *steps])
    row_weight = _update_weight(z, rows)
    weights, precision = _shrunk(design, rows.y, precision, row_weight)
    slope, intercept = weights[:2]
    coef = slope * np.array(reference.coef) + weights[2:]
    if penalty.keep_signs and (coef * reference.coef < 0).any():
        coef, slope, intercept = _constrained(reference, x, rows.y, weights, precision, row_weight)
    middle = x.mean(axis=0)  # the same map, centred on the mean of these rows
    low, high = reference.low, reference.high
    if low:
        within = np.clip(rows.x, low, high)
        own_share = n * row_weight / (n * row_weight + OLD_EFFECTIVE_N)
        low = tuple(own_share * within.min(axis=0) + (1 - own_share) * np.array(low))
        high = tuple(own_share * within.max(axis=0) + (1 - own_share) * np.array(high))
    return LogisticMap(
        tuple(coef),
        float(slope * reference.intercept + intercept + coef @ middle),
        tuple(np.array(reference.mean) + middle * np.array(reference.scale)),
        reference.scale,
        low,
        high,
    )


def _constrained(
    reference: LogisticMap,
    x: Floats,
    labels: Ints,
    free: Floats,
    precision: Floats,
    row_weight: float,
) -> tuple[Floats, float, float]:
    """The weights (d,), slope and intercept of `fit_shrunk`, with the signs of the reference.

    `free` are the slope, intercept and steps (d,) without the constraint. The problem is convex,
    with bounds on the weights slope * old + steps: L-BFGS-B (Byrd et al. 1995).
    """
    before, d = np.array(reference.coef), x.shape[1]

    def loss(v: Floats) -> tuple[float, Floats]:
        coef, slope, intercept = v[:d], v[d], v[d + 1]
        logits = x @ coef + slope * reference.intercept + intercept
        gap = row_weight * (arrays.sigmoid(logits) - labels)
        moves = coef - slope * before
        shift = np.array([slope - 1, intercept])
        value = row_weight * float((np.logaddexp(0.0, logits) - labels * logits).sum())
        value += float(precision[:2] @ shift**2 + precision[2:] @ moves**2) / 2
        pull = precision[2:] * moves
        total = gap.sum()
        shared = precision[:2] * shift + [reference.intercept * total - pull @ before, total]
        return value, np.concatenate([x.T @ gap + pull, shared])

    start = free[0] * before + free[2:]
    start[start * before < 0] = 0.0
    signs = [(0, None) if w > 0 else (None, 0) if w < 0 else (None, None) for w in before]
    found = minimize(
        loss,
        np.concatenate([start, free[:2]]),
        jac=True,
        method="L-BFGS-B",
        bounds=[*signs, (None, None), (None, None)],
        options={"maxiter": 1000, "ftol": 1e-12},
    ).x
    return found[:d], float(found[d]), float(found[d + 1])


def fit_update(scores: ArrayLike, y: ArrayLike, groups: Groups = None) -> LogisticMap:
    """Return sigmoid(a score + b) of log odds (n,): an old map's output, moved by few new labels.

    As `fit_shrunk`, without steps, and with the standard deviations `SLOPE_SPREAD` and
    `INTERCEPT_SPREAD`. A slope below `MIN_SLOPE` is raised to it: the order must stay.
    """
    return update_of(Rows.of(scores, y, groups, 1))


def update_of(rows: Rows, *, bounded: bool = False) -> LogisticMap:
    """`fit_update` of rows of one score; `bounded`, it claims no more than the labels can support.

    Let n be the effective number of labels plus `OLD_EFFECTIVE_N` for the old map. Every
    probability is then at least 1 / (n + 2) and at most (n + 1) / (n + 2): Laplace's rule for n
    misses and for n hits. Scores are clipped to where they reach these bounds.
    """
    s = rows.x[:, 0]
    design = np.column_stack([s, np.ones(len(s))])
    precision = np.array([SLOPE_SPREAD**-2, INTERCEPT_SPREAD**-2])
    row_weight = _update_weight(s, rows)
    (slope, intercept), precision = _shrunk(design, rows.y, precision, row_weight)
    if slope < MIN_SLOPE:  # then the intercept is refitted for the raised slope
        slope = MIN_SLOPE
        intercept = maximum_likelihood(
            design[:, 1:],
            rows.y.astype(np.float64),
            np.zeros(1),
            precision=precision[1:],
            offset=slope * s,
            row_weight=row_weight,
        )[0]
    slope, intercept, ends = float(slope), float(intercept), []
    if bounded:
        n = len(s) * row_weight + OLD_EFFECTIVE_N
        ends = [(float((sign * np.log(n + 1) - intercept) / slope),) for sign in (-1, 1)]
    return LogisticMap((slope,), intercept, (0.0,), (1.0,), *ends)


def _update_weight(scores: Floats, rows: Rows) -> float:
    """The weight of each row in the likelihood: effective number of rows / number of rows."""
    errors = rows.y - arrays.sigmoid(scores)
    return 1 / design_effect(errors - errors.mean(), rows.number)


def _shrunk(design: Floats, y: Ints, precision: Floats, row_weight: float) -> tuple[Floats, Floats]:
    """The MAP weights (d,) of the design (n, d), and the precision (d,) of their prior.

    The first column is the old map's logit, with prior mean 1; the second is 1; the other weights
    have prior mean 0. If the labels are strong evidence that the first two moved more than the
    prior expects, their prior is `WIDER` times as wide.
    """
    target = y.astype(np.float64)
    unchanged = np.zeros(design.shape[1])
    unchanged[0] = 1.0
    wider = precision.copy()
    wider[:2] /= WIDER**2
    narrow, wide = (
        maximum_likelihood(design, target, unchanged, precision=p, row_weight=row_weight)
        for p in (precision, wider)
    )
    evidence = [
        log_evidence(design, target, w, unchanged, precision=p, row_weight=row_weight)
        for w, p in ((wide, wider), (narrow, precision))
    ]
    gain = evidence[0] - evidence[1]
    return (wide, wider) if gain > STRONG else (narrow, precision)


class Folds(NamedTuple):
    """How a first stage is cross-fitted: see `first_stage`."""

    folds: int = 5
    C: float | Penalty | None = None
    random_state: int = 0
    reference: LogisticMap | None = None

    def penalties(self) -> Sequence[Penalty]:
        """The penalties to choose from: that of `C`, if it is given."""
        if self.C is None:
            return STEPS if self.reference else [Penalty(each) for each in PENALTIES]
        given = self.C if isinstance(self.C, Penalty) else Penalty(self.C, keep_signs=True)
        return [Penalty(_positive(given.C), given.keep_signs)]

    def rows(self, X: ArrayLike, y: ArrayLike, groups: Groups) -> Rows:
        """The rows, checked; with a reference, they have as many features."""
        return Rows.of(X, y, groups, len(self.reference.coef) if self.reference else 0)

    def of(self, rows: Rows) -> Ints:
        """The folds (n,) of rows, by group."""
        return selection.grouped_folds(rows.number, self.folds, random_state=self.random_state)


def first_stage(rows: Rows, how: Folds) -> tuple[LogisticMap, Penalty, Floats]:
    """Return the logistic map of the features, its penalty, and its out-of-fold logits (n,).

    If C is None, it is the strongest penalty of `PENALTIES` within one standard error of the lowest
    grouped cross-validated log loss. The map is refitted on all rows. Without a reference, with
    fewer than two groups or labels of one class, it is a constant.

    With a `reference` map, the fit is `fit_shrunk`, and C, from `STEPS`, is the variance of each
    step away from the old map. A larger step than the smallest is used only if its cross-validated
    gain is `STRONG` evidence, which few labels cannot give. A step that may change signs of weights
    needs `VERY_STRONG` evidence: most changes of sign are chance, and a weight of the wrong sign
    gives the user a wrong reason. A C that is a number keeps the signs.

    Without a reference, the out-of-fold logits are those of maps moved to one level, the mean logit
    of the map that is returned: a fold with few right rows is left to a map of many, whose high
    intercept would hide what the features say.
    """
    if how.folds < 2:
        raise ValueError(f"expected at least two folds, got {how.folds}")
    fold, penalties, reference, x = how.of(rows), how.penalties(), how.reference, rows.x

    def fit(some: Rows, penalty: Penalty) -> LogisticMap:
        if reference is None:
            return _fit_logistic(some.x, some.y, penalty.C)
        return _fit_shrunk(reference, some, penalty)

    if reference is not None and fold.max() == 0:
        return fit(rows, penalties[0]), penalties[0], reference.logit(x)
    if reference is None and (fold.max() == 0 or rows.y.min() == rows.y.max()):
        first = _fit_logistic(x, rows.y, penalties[0].C, constant=True)
        return first, penalties[0], np.full(len(x), first.intercept)
    # by maps fitted without the row's fold, and the mean logits of the rows that these saw
    logits, levels = np.empty((2, len(penalties), len(x)))
    with threadpool_limits(limits=1):  # the matrices are small: threads only wait for each other
        for held in selection.held_out(fold):
            others = rows.where(~held)
            for i, each in enumerate(penalties):
                fitted = fit(others, each)
                logits[i, held] = fitted.logit(x[held])
                levels[i, held] = fitted.logit(others.x).mean()
    losses = np.array([row_losses(rows.y, arrays.sigmoid(row)) for row in logits])
    if reference is None:
        best = selection.one_standard_error(losses, rows.number)
        first = fit(rows, penalties[best])
        return first, penalties[best], logits[best] - levels[best] + first.logit(x).mean()
    best, keeping = 0, sum(step.keep_signs for step in STEPS)
    for steps, evidence in ((len(losses), VERY_STRONG), (keeping, STRONG)):
        likely = selection.one_standard_error(losses[:steps], rows.number)
        gain = losses[0] - losses[likely]
        if gain.mean() * effective_n(gain, rows.number) > evidence:  # the first one, if in doubt
            best = likely
            break
    return fit(rows, penalties[best]), penalties[best], logits[best]


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

    The first stage is `first_stage`. The second, `SCORE_FITS[second_stage]`, is fitted on the
    grouped out-of-fold logits of the first. With a `reference` map, the second stage named logistic
    is an update shrunk towards no change.
    """
    fit = _second_stage(second_stage, reference)
    how = Folds(folds, C, random_state, reference)
    rows = how.rows(X, y, groups)
    first, penalty, out = first_stage(rows, how)
    return TwoStageMap(first, fit(out, rows)), penalty, out


def cross_fit_two_stage(second_stages: Sequence[str], rows: Rows, how: Folds) -> dict[str, Floats]:
    """Return (n,) out-of-fold probabilities by the name of the second stage.

    Each row's probability comes from two stages fitted without the row's group; all second stages
    share the first.

    Raises:
        ValueError: as `fit_two_stage`; fewer than two groups.
    """
    fits = {name: _second_stage(name, how.reference) for name in second_stages}
    result = {name: np.empty(len(rows.x)) for name in second_stages}
    for held in selection.held_out(how.of(rows)):
        others = rows.where(~held)
        first, _, out = first_stage(others, how)
        for name, fit in fits.items():
            result[name][held] = TwoStageMap(first, fit(out, others)).predict(rows.x[held])
    return result


class BestFit(NamedTuple):
    """A map, the second stage that was chosen, and out-of-fold probabilities (n,)."""

    map: TwoStageMap
    choice: selection.Choice
    out_of_fold: Floats
    effective: float  # number of independent rows that the labels are worth
    of_base_rate: float  # log loss of the base rate for all rows, in nats


def fit_best(
    second_stages: Sequence[str],
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    folds: int = 5,
    random_state: int = 0,
    reference: LogisticMap | None = None,
) -> BestFit:
    """Choose among second stages, simple to complex, by `cross_fit_two_stage`, and fit the best.

    Of several, those that take more independent rows (`MINIMUM_ROWS`) are not considered.
    """
    how = Folds(folds, None, random_state, reference)
    rows = how.rows(X, y, groups)
    n = effective_n(rows.y - rows.y.mean(), rows.number)
    names = [s for s in second_stages if len(second_stages) == 1 or selection.enough_rows(s, n)]
    left_out = [s for s in second_stages if s not in names]
    cross_fitted = cross_fit_two_stage(names, rows, how)
    choice = selection.choose(cross_fitted, rows.y, rows.number, left_out=left_out, effective_n=n)
    first, _, out = first_stage(rows, how)
    fitted = TwoStageMap(first, _second_stage(choice.name, reference)(out, rows))
    of_base_rate = row_losses(rows.y, np.full(len(rows.y), base_rate(rows.y))).mean()
    return BestFit(fitted, choice, cross_fitted[choice.name], n, float(of_base_rate))


def _second_stage(name: str, reference: LogisticMap | None) -> Callable[[Floats, Rows], ScoreMap]:
    """Return the fit of the second stage: a function of logits (n,) and the rows' labels."""
    if name not in SCORE_FITS:
        kinds = ", ".join(SCORE_FITS)
        raise ValueError(f"second_stage must be one of {kinds}, got {name!r}")
    if reference is not None and name == "logistic":
        return lambda out, rows: update_of(Rows(out[:, None], rows.y, rows.number), bounded=True)
    return lambda out, rows: SCORE_FITS[name](out, rows.y)

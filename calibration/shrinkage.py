"""A map shrunk towards a reference map: its logit times a, plus b, plus a step for each feature.

All three are shrunk towards no change (a = 1, b = 0, no step), so few labels move the old map
little, and many as far as the data say. An update of log odds is the case without steps. It knows
nothing of where the old map comes from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from calibration import arrays
from calibration.arrays import Floats, Groups, Ints
from calibration.effective_sample_size import design_effect
from calibration.maps import LogisticMap
from calibration.score_fitting import log_evidence, maximum_likelihood

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
    y - sigmoid(z) around its mean, which the intercept corrects; None: all rows are independent.
    Labels may be of one class. With `keep_signs` each weight
    has the sign that it has in `reference`, or is 0 (Meinshausen 2013, "Sign-constrained least
    squares estimation for high-dimensional regression").

    The features are clipped to the mean of the ranges of these rows and of `reference`, weighted by
    their effective numbers of labels, `OLD_EFFECTIVE_N` for `reference`; without a range there,
    they are not clipped.
    """
    z, x = reference.logit(X), reference.standardised(X)
    labels = arrays.as_labels(y, len(z))
    if not C > 0:
        raise ValueError(f"C must be positive, got {C}")
    design = np.column_stack([z, np.ones(len(z)), x])
    steps = np.full(x.shape[1], 1 / C)
    precision = np.array([SLOPE_SPREAD**-2, OF_ANOTHER_SET**-2, *steps])
    row_weight = _update_weight(z, labels, groups)
    weights, precision = _shrunk(design, labels, precision, row_weight)
    slope, intercept = weights[:2]
    coef = slope * np.array(reference.coef) + weights[2:]
    if keep_signs and (coef * reference.coef < 0).any():
        coef, slope, intercept = _sign_constrained(
            reference, x, labels, weights, precision, row_weight
        )
    middle = x.mean(axis=0)  # the same map, centred on the mean of these rows
    low, high = reference.low, reference.high
    if low:
        within = np.clip(arrays.as_features(X, len(reference.coef)), low, high)
        own_share = len(z) * row_weight / (len(z) * row_weight + OLD_EFFECTIVE_N)
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


def _sign_constrained(
    reference: LogisticMap,
    x: Floats,
    labels: Ints,
    free: Floats,
    precision: Floats,
    row_weight: float,
) -> tuple[Floats, float, float]:
    """The weights (d,), slope and intercept of `fit_shrunk`, with the signs of the reference.

    `free` are the slope, intercept and steps (d,) without the constraint. The problem is convex,
    with bounds on the weights slope * old + steps: solved in these by L-BFGS-B (Byrd et al. 1995).
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
    `INTERCEPT_SPREAD`. A slope below `MIN_SLOPE` is raised to it: labels must not reverse the order
    of the scores. The design effect is that of the old map's errors around their mean, which the
    update corrects.
    """
    s = arrays.as_scores(scores)
    labels = arrays.as_labels(y, len(s))
    design = np.column_stack([s, np.ones(len(s))])
    precision = np.array([SLOPE_SPREAD**-2, INTERCEPT_SPREAD**-2])
    row_weight = _update_weight(s, labels, groups)
    (slope, intercept), precision = _shrunk(design, labels, precision, row_weight)
    if slope < MIN_SLOPE:  # then the intercept is refitted for the raised slope
        slope = MIN_SLOPE
        intercept = maximum_likelihood(
            design[:, 1:],
            labels.astype(np.float64),
            np.zeros(1),
            precision=precision[1:],
            offset=slope * s,
            row_weight=row_weight,
        )[0]
    return LogisticMap((float(slope),), float(intercept), (0.0,), (1.0,))


def fit_bounded_update(scores: ArrayLike, y: ArrayLike, groups: Groups = None) -> LogisticMap:
    """Return `fit_update` of log odds (n,), which claims no more than the labels can support.

    Let n be the effective number of labels plus `OLD_EFFECTIVE_N` for the old map. Every
    probability is at least 1 / (n + 2) and at most (n + 1) / (n + 2): Laplace's rule for n misses
    and for n hits. Scores are clipped to where they reach these bounds.
    """
    update = fit_update(scores, y, groups)
    s = arrays.as_scores(scores)
    n = len(s) * _update_weight(s, arrays.as_labels(y, len(s)), groups) + OLD_EFFECTIVE_N
    slope, intercept = update.coef[0], update.intercept
    low, high = ((sign * np.log(n + 1) - intercept) / slope for sign in (-1, 1))
    return LogisticMap((slope,), intercept, (0.0,), (1.0,), (float(low),), (float(high),))


def _update_weight(scores: Floats, labels: Ints, groups: Groups) -> float:
    """The weight of each row in the likelihood: effective number of rows / number of rows."""
    errors = labels - arrays.sigmoid(scores)
    return 1 / design_effect(errors - errors.mean(), arrays.group_codes(groups, len(scores)))


def _shrunk(
    design: Floats, labels: Ints, precision: Floats, row_weight: float
) -> tuple[Floats, Floats]:
    """The MAP weights (d,) of the design (n, d), and the precision (d,) of their prior.

    The first column is the old map's logit, with prior mean 1; the second is 1; the other weights
    have prior mean 0. If the labels are strong evidence that the first two moved more than the
    prior expects, their prior is `WIDER` times as wide.
    """
    target = labels.astype(np.float64)
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

"""Metrics of abstention: what leaving out the least confident rows gains, in one number each.

y is (n,) of 0 and 1, p is (n,) in [0, 1], n >= 1, checked as `arrays.check_y_p`. numpy only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Ints, check_y_p


def tie_blocks(ordered: Floats, labels: Floats) -> tuple[Ints, Floats]:
    """Return where each run of equal values ends (exclusive), and the labels' sum within it."""
    ends = np.append(np.flatnonzero(np.diff(ordered)) + 1, len(ordered))
    return ends, np.add.reduceat(labels, np.append(0, ends[:-1]))


def expected_errors(y: ArrayLike, p: ArrayLike) -> Floats:
    """Return (n,): expected errors among the 1, 2, ..., n most confident rows, averaged over ties.

    Within a run of equal p every order is equally likely, so the expected count grows linearly; no
    random numbers are needed.
    """
    labels, values = check_y_p(y, p)
    order = np.argsort(-values, kind="stable")
    ends, wrong = tie_blocks(-values[order], 1 - labels[order])
    errors = np.append(0.0, np.cumsum(wrong))
    return np.asarray(
        np.interp(np.arange(1, len(order) + 1), np.append(0, ends), errors), dtype=np.float64
    )


def aurc(y: ArrayLike, p: ArrayLike) -> float:
    """Return the area under the risk-coverage curve: mean error rate of the k most confident.

    In [0, 1], lower is better (Geifman and El-Yaniv 2017); averaged over ties.
    """
    errors = expected_errors(y, p)
    return float(np.mean(errors / np.arange(1, len(errors) + 1)))


def augrc(y: ArrayLike, p: ArrayLike) -> float:
    """Return the area under the generalised risk-coverage curve (Traub et al. 2024).

    The mean over k of the share of *all* rows that is both accepted and wrong; unlike `aurc` it
    does not weigh the few most confident rows above all others. In [0, (n + 1) / (2 n)] of n rows;
    lower is better.
    """
    errors = expected_errors(y, p)
    return float(np.mean(errors / len(errors)))


def naurc(y: ArrayLike, p: ArrayLike) -> float:
    """Return `aurc` rescaled so that chance is 0 and the oracle 1; NaN if y has one class.

    Below 0 the confidence is worse than none.
    """
    labels, values = check_y_p(y, p)
    chance, oracle = 1 - labels.mean(), aurc(labels, labels)
    if not 0 < chance < 1:
        return float("nan")
    return float((chance - aurc(labels, values)) / (chance - oracle))


def nauc(y: ArrayLike, p: ArrayLike) -> float:
    """Return MTEB's nAUC of abstention: 1 for the oracle, 0 for chance; NaN if y has one class.

    The area, by the trapezoidal rule, under the accuracy with the least confident 0, 10, ..., 90%
    left out, rescaled from the flat curve's area to the oracle's (Gisserot-Boukhlef et al. 2024);
    averaged over ties.
    """
    errors, n = expected_errors(y, p), len(np.asarray(y))
    rates = np.linspace(0, 1, 11)[:-1]  # to the last digit, which decides how MTEB rounds a half
    accepted = np.array([n - min(round(rate * n), n - 1) for rate in rates.tolist()])
    hits = n - errors[-1]
    if not 0 < hits < n:
        return float("nan")

    def area(accuracy: Floats) -> float:
        return float((accuracy[1:] + accuracy[:-1]).sum() / 20)

    flat, oracle = 0.9 * hits / n, area(np.minimum(1.0, hits / accepted))
    return float((area(1 - errors[accepted - 1] / accepted) - flat) / (oracle - flat))

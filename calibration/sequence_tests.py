"""The tests behind a certificate: how surely the first k rows are right often enough, for every k.

Labels in the order of falling confidence in, tails and places out. It knows nothing of confidences.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibration.arrays import Floats

Counts = NDArray[np.int64]

POWER = 0.8
"""How likely a test should pass for a number of rows to be called enough."""

GAPS = (0.75, 0.5, 0.25, 0.125)
"""Accuracies that the starts of a sequence are made for, as shares of the way from target to 1."""

WEIGHTS = (1, 2, 1, 1)
"""How the chance of a false promise is shared among the starts."""


@lru_cache
def test_sizes(target: float, level: float) -> tuple[int, ...]:
    """Return, for each of `GAPS`, how many rows a test needs to pass with probability `POWER`.

    >>> test_sizes(0.7, 0.95)
    (19, 49, 219, 900)
    """
    from scipy.stats import binom

    sizes = np.arange(1, 100_000)
    least = binom.isf(1 - level, sizes, target) + 1  # hits that refute the target
    return tuple(
        int(sizes[(binom.sf(least - 1, sizes, target + gap * (1 - target)) >= POWER).argmax()])
        for gap in GAPS
    )


def tails(labels: Floats, effective: Floats, target: float) -> Floats:
    """Return (n,): the chance of as many hits or more in the first k, were `target` of them right.

    The binomial tail; where k rows are worth fewer, `effective` (n,), of as many, by the incomplete
    beta function.
    """
    from scipy.special import betainc

    share = np.cumsum(labels) / np.arange(1, len(labels) + 1)
    hits = effective * share
    found = betainc(np.maximum(hits, 1e-9), effective - hits + 1, target)
    return np.asarray(np.where(hits > 0, found, 1.0))


def effective_rows(
    labels: Floats, number: Counts, target: float, level: float
) -> tuple[Floats, Floats]:
    """Return, of the first k rows, how many independent ones and how many groups they are worth.

    Both (n,). Rows come with the number of their group. A share of dependent rows varies more than
    the binomial by the design effect: the variance of the share between groups, were it `target`,
    over the binomial one (Rao & Scott 1992), never below 1; and as t is wider than the normal with
    so few groups (Korn & Graubard 1998). Groups of different sizes are worth fewer of one size
    (Kish 1965).
    """
    from scipy.special import ndtri, stdtrit

    n, order = len(labels), np.argsort(number, kind="stable")
    begins = np.flatnonzero(np.diff(number[order], prepend=-1))
    lengths = np.diff(begins, append=n)
    earlier, hit = np.empty(n), np.empty(n)  # rows of the same group before each, and their hits
    earlier[order] = np.arange(n) - np.repeat(begins, lengths)
    before = np.cumsum(labels[order]) - labels[order]
    hit[order] = before - np.repeat(before[begins], lengths)
    # sums over groups of hits^2, hits * rows and rows^2, as they grow row by row
    hits2 = np.cumsum(labels * (2 * hit + 1))
    both = np.cumsum(hit + labels * (earlier + 1))
    rows2 = np.cumsum(2 * earlier + 1)
    k = np.arange(1, n + 1)
    groups = k**2 / rows2
    between = (hits2 - 2 * target * both + target**2 * rows2) / k
    independent = k / np.maximum(1.0, between / (target * (1 - target)))
    freedom = np.maximum(groups - 1, 1.0)
    wider = ndtri(level) / stdtrit(freedom, level)
    return independent * freedom / (freedom + 1) * wider**2, groups


def last_refuted(tail: Floats, ends: Counts, size: Floats, target: float, level: float) -> int:
    """Return the last of `ends` up to which "no more than `target`" is refuted, or -1.

    tail (n,) and size (n,) are those of the first k rows; only at `ends`, rising, may a threshold
    lie. The fallback procedure (Wiens & Dmitrienko 2005) along a fixed sequence: of the chance of a
    false promise, 1 - `level`, each start has a share, where the rows are worth `test_sizes`; a
    test that refutes hands what it had on to the next one, one that does not loses it. So any
    false promise is made with probability 1 - `level` at most, and a stretch of bad luck among the
    most confident does not end it all.
    """
    sizes, chances = _starts(float(size[-1]), target, level)
    starts = np.minimum(np.searchsorted(size[ends], sizes), len(ends) - 1)
    last, budget = -1, 0.0
    for start, stop, chance in zip(starts, [*starts[1:], len(ends)], chances, strict=True):
        budget += chance
        failed = np.flatnonzero(tail[ends[start:stop]] > budget)
        passed = int(failed[0]) if len(failed) else stop - start
        if passed:
            last = int(ends[start + passed - 1])
        if len(failed):
            budget = 0.0
    return last


def chance_of_a_start(truth: Floats, target: float, level: float) -> float:
    """Return how likely the likeliest of the starts refutes "no more than `target`".

    truth (n,): how likely each row is right, the most confident first.
    """
    from scipy.stats import binom

    sizes, chances = _starts(float(len(truth)), target, level)
    least = binom.isf(chances, sizes, target)  # more hits than these refute it
    mean = np.cumsum(truth[: sizes[-1]])[sizes - 1] / sizes
    return float(binom.sf(least, sizes, mean).max())


def _starts(n: float, target: float, level: float) -> tuple[Counts, Floats]:
    """Return where n rows have starts (all of them, if they are few), and the chance of each."""
    sizes = [s for s in test_sizes(target, level) if s <= n] or [max(1, int(n))]
    weights = np.array(WEIGHTS[: len(sizes)], dtype=np.float64)
    return np.array(sizes, dtype=np.int64), weights / weights.sum() * (1 - level)

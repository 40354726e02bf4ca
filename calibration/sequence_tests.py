"""The tests behind a certificate: are the first k rows right often enough, for every k?

Labels by falling confidence in, tail probabilities and places out. The rows are independent; for
groups of dependent rows see `group_tests`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from calibration.arrays import Floats, Ints

POWER = 0.8
"""How likely a test should pass for a number of rows to be called enough."""

GAPS = (0.75, 0.5)
"""Accuracies that the first starts of a sequence are made for, as shares of the way from target to
1; each further start is made for half the gap before it, up to the number of rows."""

WEIGHTS = (1, 2)
"""How these starts share the chance of a false promise; 1 for each further one."""

FORESEEN = 0.5
"""Share of that chance for the one start whose place the confidences determine."""

HOPE = 0.25
"""How likely that start must pass, if the confidences are true, to get its share."""


@lru_cache
def _rows_needed(gap: float, target: float, level: float) -> int:
    """Return how many rows a test needs to pass with probability `POWER`, `gap` above the target.

    Exact; the search begins below the size of a normal approximation.
    """
    from scipy.special import ndtri
    from scipy.stats import binom

    rate = target + gap * (1 - target)
    spread = ndtri(level) * np.sqrt(target * (1 - target)) + ndtri(POWER) * np.sqrt(
        rate * (1 - rate)
    )
    near = int((spread / (rate - target)) ** 2)
    sizes = np.arange(max(1, near // 3), 2 * near + 50)
    least = binom.isf(1 - level, sizes, target) + 1  # hits that refute the target
    return int(sizes[(binom.sf(least - 1, sizes, rate) >= POWER).argmax()])


def rows_to_begin_with(target: float, level: float, n: float) -> tuple[int, ...]:
    """Return the numbers of rows, n at most, that tests need for smaller and smaller gaps.

    The gaps are `GAPS`, and then halves. If n is too small for the first, the only number is n.

    >>> rows_to_begin_with(0.7, 0.95, 5000)
    (19, 49, 219, 900, 3643)
    """
    sizes: list[int] = []
    gap = GAPS[0]
    while (size := _rows_needed(gap, target, level)) <= n:
        sizes.append(size)
        gap = GAPS[len(sizes)] if len(sizes) < len(GAPS) else gap / 2
    return tuple(sizes) or (max(1, int(n)),)


def tails(labels: Floats, target: float) -> Floats:
    """Return (n,) binomial tails: P(at least as many hits in the first k) at accuracy `target`."""
    from scipy.special import betainc

    hits = np.cumsum(labels)
    chances = betainc(np.maximum(hits, 1e-9), np.arange(1, len(labels) + 1) - hits + 1, target)
    return np.asarray(np.where(hits > 0, chances, 1.0))


def foreseen_place(values: Floats, target: float, chance: float) -> int | None:
    """Return the place in values (n,) where a test most surely passes if the confidences are true.

    values fall. The place maximises (mean of the first k - target) sqrt(k), the standardised
    excess. None if a test there, with its share of `chance`, would pass with a probability below
    `HOPE` (by the normal approximation). Labels are not used, so a start there is valid for any
    confidences.
    """
    from scipy.special import ndtr, ndtri

    k = np.arange(1, len(values) + 1)
    excess = (np.cumsum(values) / k - target) * np.sqrt(k / (target * (1 - target)))
    best = int(np.argmax(excess))
    return best if ndtr(excess[best] + ndtri(chance * FORESEEN)) >= HOPE else None


def starts_of(
    size: Floats, ends: Ints, sizes: tuple[int, ...], foreseen: int | None, chance: float
) -> tuple[Ints, Floats]:
    """Return the starts of a sequence, as rising places in `ends`, and the chance of each.

    size (n,), which never falls, is the effective number of the first k rows. Each of `sizes` has
    one start; they share the chance of a false promise by `WEIGHTS`. If `foreseen`, a place among
    the rows, is given, it has `FORESEEN` of that chance.
    """
    weights = np.append(WEIGHTS, np.ones(len(sizes)))[: len(sizes)]
    share = chance if foreseen is None else chance * (1 - FORESEEN)
    places = np.searchsorted(size[ends], sizes)
    chances = weights / weights.sum() * share
    if foreseen is not None:
        places = np.append(places, np.searchsorted(ends, foreseen))
        chances = np.append(chances, chance * FORESEEN)
    starts, which = np.unique(np.minimum(places, len(ends) - 1), return_inverse=True)
    return starts.astype(np.int64), np.bincount(which, chances).astype(np.float64)


def refuted(tail: Floats, ends: Ints, starts: Ints, chances: Floats) -> Ints:
    """Return those of `ends` up to which "no more than the target" is refuted.

    tail (n,) are the p-values of the first k rows; a threshold may lie only at `ends`, which rise.
    This is the fallback procedure (Wiens & Dmitrienko 2005) along a fixed sequence: each of
    `starts`, places in `ends`, has a share of the chance of a false promise. A test that refutes
    passes its chance on to the next one; a test that does not loses it. So the chance of any false
    promise is at most the sum of the chances, and bad luck among the most confident rows does not
    end the procedure.
    """
    found, budget = np.zeros(len(ends), dtype=np.bool_), 0.0
    for start, stop, chance in zip(starts, [*starts[1:], len(ends)], chances, strict=True):
        budget += chance
        failed = np.flatnonzero(tail[ends[start:stop]] > budget)
        passed = int(failed[0]) if len(failed) else stop - start
        found[start : start + passed] = True
        if len(failed):
            budget = 0.0
    return ends[found]


def chance_of_a_start(truth: Floats, target: float, level: float, *, reach: float) -> float:
    """Return the probability that the likeliest of the starts refutes "no more than `target`".

    truth (n,): the probability that each row is right, the most confident first; also used as the
    confidences. Only the starts among the first `reach` of the rows, a share, count.
    """
    from scipy.stats import binom

    n = len(truth)
    places, chances = starts_of(
        np.arange(1.0, n + 1),
        np.arange(n),
        rows_to_begin_with(target, level, n),
        foreseen_place(truth, target, 1 - level),
        1 - level,
    )
    sizes = places + 1
    least = binom.isf(chances, sizes, target)  # more hits than these refute it
    mean = np.cumsum(truth)[places] / sizes
    return float(binom.sf(least, sizes, mean)[sizes <= reach * n].max(initial=0.0))

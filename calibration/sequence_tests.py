"""The tests behind a certificate: are the first k rows right often enough, for every k?

Labels by falling confidence in, tail probabilities and places out. The rows are independent; for
groups of dependent rows see `group_tests`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from calibration.arrays import Floats, Ints, log_odds, sigmoid

POWER = 0.8  # how likely a test should pass for a number of rows to be called enough
# the same for labels that are yet to be made, as the accuracy is itself estimated: so the advice is
# right four times in five (`make promise`)
ADVISED = 0.9
# accuracies that the first starts of a sequence are made for, as shares of the way from target to
# 1; each further start is made for half the gap before it, up to the number of rows
GAPS = (0.75, 0.5)
WEIGHTS = (1, 2)  # how these starts share the chance of a false promise; 1 for each further one
FORESEEN = 0.95  # share of that chance for the one start whose place the confidences determine
# by how much the log odds of the confidences may be too high where that start is chosen
TOO_HIGH = (0.0, 1.0)


@lru_cache
def _rows_needed(gap: float, target: float, level: float) -> int:
    """Return how many rows a test needs to pass with probability `POWER`, `gap` above target."""
    from scipy.special import ndtri
    from scipy.stats import binom

    rate = target + gap * (1 - target)
    at_target, at_rate = (np.sqrt(share * (1 - share)) for share in (target, rate))
    near = int(((ndtri(level) * at_target + ndtri(POWER) * at_rate) / (rate - target)) ** 2)
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


def foreseen_place(values: Floats, size: Floats, ends: Ints, target: float, chance: float) -> int:
    """Return the place in `ends` where a test most surely refutes the target, by the confidences.

    values (n,) fall; size (n,): the independent rows or groups among the first k. There the exact
    power of a test with its share of `chance` is highest, in the mean over confidences that are
    true and that have log odds too high by `TOO_HIGH`. Labels are not used, so a start there is
    valid for any confidences.
    """
    from scipy.stats import binom

    least, scores = binom.isf(chance * FORESEEN, size[ends], target), log_odds(values)
    means = [np.cumsum(sigmoid(scores - high))[ends] / (ends + 1) for high in TOO_HIGH]
    return int(np.argmax(sum(binom.sf(least, size[ends], mean) for mean in means)))


def starts_of(
    size: Floats, ends: Ints, sizes: tuple[int, ...], foreseen: int, chance: float
) -> tuple[Ints, Floats]:
    """Return the starts of a sequence, as rising places in `ends`, and the chance of each.

    size (n,), which never falls, is the effective number of the first k rows. The place `foreseen`
    has `FORESEEN` of the chance of a false promise. Each of `sizes` has one start besides; they
    share the rest by `WEIGHTS`.
    """
    weights = np.append(WEIGHTS, np.ones(len(sizes)))[: len(sizes)]
    places = np.append(np.searchsorted(size[ends], sizes), foreseen)
    chances = np.append((1 - FORESEEN) * weights / weights.sum(), FORESEEN) * chance
    starts, which = np.unique(np.minimum(places, len(ends) - 1), return_inverse=True)
    return starts.astype(np.int64), np.bincount(which, chances).astype(np.float64)


def refuted(tail: Floats, ends: Ints, starts: Ints, chances: Floats) -> Ints:
    """Return those of `ends` up to which "no more than the target" is refuted.

    tail (n,) are the p-values of the first k rows; a threshold may lie only at `ends`, which rise.
    This is the fallback procedure (Wiens & Dmitrienko 2005) along a fixed sequence: each of
    `starts`, places in `ends`, has a share of the chance of a false promise. A test that refutes
    passes its chance on to the next one; a test that does not loses it. So the chance of any false
    promise is at most the sum of the chances.
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


def times_needed(
    mean: Floats, units: Floats, worth: Floats, target: float, chance: float, most: float
) -> float:
    """Return how many times as many rows like these would refute the target with power `ADVISED`.

    mean (m,): the accuracy of the rows down to each of m places, units (m,): the rows or groups,
    and worth (m,): the independent rows that they count for. It is the least over the places, by
    the exact binomial test at `chance`, to 5%; above `most`: infinity. Groups that are worth more
    than a row each need more for the extra one that is all wrong (`group_tests.group_tails`).
    """
    from scipy.stats import binom

    largest = most * float(worth.max())
    sizes = np.unique(np.geomspace(1, largest, 1 + int(20 * np.log(largest))).astype(np.int64))
    least = binom.isf(chance, sizes, target)
    enough = binom.sf(least, sizes, mean[:, None]) >= ADVISED
    needed = np.where(enough.any(axis=1), sizes[enough.argmax(axis=1)] / worth, np.inf)
    alike = np.maximum(0.0, 1 - units / worth) / np.log(np.maximum(mean / target, 1 + 1e-9))
    times = float((needed - np.log(chance) * alike / units).min())
    return times if times <= most else np.inf

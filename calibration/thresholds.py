"""Exact binomial bounds, and thresholds that a finite sample certifies.

Counts, or confidences with labels, in; bounds and certificates out. It knows nothing of how a
confidence was made.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats
from calibration.metrics import checked
from calibration.selection import codes

Counts = NDArray[np.int64]

POWER = 0.8
"""How likely a test should pass for a number of labels to be called enough."""


def lower_bound(hits: int, n: int, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson lower bound of a share, from `hits` of `n`.

    The true share is above it in at least `level` of all samples, whatever the share is (Clopper
    and Pearson 1934). No hit gives 0.0, and so does n = 0.

    Raises:
        ValueError: hits not within 0..n, or level not within (0, 1).
    """
    _check(hits, n, level)
    if hits == 0:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(hits, n - hits + 1, 1 - level))


def upper_bound(hits: int, n: int, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper bound of a share; hits = n gives 1.0, also at 0.

    Raises:
        ValueError: hits not within 0..n, or level not within (0, 1).
    """
    return 1.0 - lower_bound(n - hits, n, level=level)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The lowest threshold that is promised, or None and why there is none.

    threshold: accept where the confidence is at least this; then at least `target` of what is
        accepted is right, in `level` of all samples that could have been drawn. None: no promise.
    queries: labelled queries that it rests on.
    accepted, right: how many of them reach the threshold, and how many of those are right.
    labels_needed: queries that a promise would take, were accuracy as it was measured; None where
        there is a threshold, or where no number would do.
    """

    threshold: float | None
    target: float
    level: float
    queries: int
    accepted: int
    right: int
    labels_needed: int | None

    @property
    def sentence(self) -> str:
        """What is promised, or why nothing is and what it would take."""
        promise = f"at least {self.target:.0%} right, at {self.level:.0%} confidence"
        if self.threshold is not None:
            return (
                f"From {self.threshold:.3f} up {promise}: {self.right} of {self.accepted} were, "
                f"{self.accepted / self.queries:.0%} of {self.queries} queries."
            )
        if self.labels_needed is None:
            return (
                f"No threshold is certified ({promise}): on none of the {self.queries} queries' "
                "most confident shares was accuracy high enough; better scores are needed."
            )
        return (
            f"No threshold is certified ({promise}) from {self.queries} labelled queries; about "
            f"{self.labels_needed - self.queries} more would do, were accuracy as it is on these."
        )

    def promises(self, confidence: float) -> bool:
        """Whether a confidence is one for which the promise is given."""
        return self.threshold is not None and confidence >= self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `Certificate(**d)` gives an equal one back."""
        return asdict(self)


def certify(
    y: ArrayLike,
    p: ArrayLike,
    *,
    groups: Sequence[Hashable] | NDArray[Any] | None = None,
    target: float = 0.7,
    level: float = 0.95,
) -> Certificate:
    """Return the lowest threshold on p (n,) above which y (n,) is right at least `target` often.

    Learn-then-Test (Angelopoulos et al. 2021) by a fixed sequence: "of the k most confident no
    more than `target` are right" is tested for rising k, each time at 1 - `level`, and testing
    stops at the first that cannot be refuted. So a promise that is false is made with probability
    at most 1 - `level`, whatever p and however many tests. Equal p are accepted together.

    Where every row is by itself the test is the exact binomial tail, from `first_test` on. Where
    groups (n,) have several rows, which depend on each other, it is the tail of as many rows as
    they are worth (`_group_tests`): an approximation, which `make promise` measures.

    p must come from maps that were not fitted on these rows. Out-of-fold p will do in practice,
    though no proof is known: a fold that is luckier than the rest is judged by maps fitted on the
    unluckier rest, which errs to the safe side (measured by `make promise`).

    Raises:
        ValueError: as `metrics.checked`; `target` or `level` not within (0, 1).
    """
    labels, values = checked(y, p)
    for name, share in (("target", target), ("level", level)):
        if not 0 < share < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {share}")
    order = np.argsort(-values, kind="stable")
    number, n = codes(groups, len(values))[order], len(values)
    labels, values = labels[order], values[order]
    hits = np.cumsum(labels).astype(np.int64)
    ends = np.append(np.flatnonzero(np.diff(values)), n - 1)  # of runs of equal p
    if number.max() + 1 == n:
        refuted = hits >= _least_hits(n, target, level)[1:]
        start, worth = min(n, first_test(target, level)), np.ones(n)
    else:
        refuted, start, worth = _group_tests(labels, number, target, level)
    ends = ends[ends >= start - 1]
    failed = np.flatnonzero(~refuted[ends])
    passed = ends[: failed[0]] if len(failed) else ends
    if not len(passed):
        needed = _labels_needed(hits, worth, target, level)
        return Certificate(None, target, level, n, 0, 0, needed)
    k = int(passed[-1])
    return Certificate(float(values[k]), target, level, n, k + 1, int(hits[k]), None)


@lru_cache
def first_test(target: float, level: float) -> int:
    """Return how many accepted rows the first test of `certify` has.

    The fewest with which an accuracy halfway from `target` to 1 would pass with probability
    `POWER`: fewer, and the sequence stops by bad luck; more, and rare good queries are given away.
    """
    from scipy.stats import binom

    sizes = np.arange(1, 100_000)
    passes = binom.sf(_least_hits(100_000, target, level)[1:-1] - 1, sizes, (1 + target) / 2)
    return int(sizes[(passes >= POWER).argmax()])


def _effective_rows(labels: Floats, number: Counts, target: float) -> tuple[Floats, Floats]:
    """Return, of the first k rows, how many independent ones and how many groups they are worth.

    Both (n,). Rows are in order, with the number of their group. A share of dependent rows varies
    more than the binomial by the design effect: the variance of the share between groups, where it
    is `target`, over the binomial one (Rao & Scott 1992), never below 1. Groups of different sizes
    are worth fewer of one size, by Kish's formula (1965).
    """
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
    between = (hits2 - 2 * target * both + target**2 * rows2) / k
    groups = k**2 / rows2
    return k / np.maximum(1.0, between / (target * (1 - target))), groups


def _group_tests(
    labels: Floats, number: Counts, target: float, level: float
) -> tuple[NDArray[np.bool_], int, Floats]:
    """Return whether "no more than `target`" is refuted of the first k rows, (n,), the first k, and
    the rows that each row is worth (n,).

    The binomial tail of the effective number of rows, which is cut further as t is wider than the
    normal with so few groups (Korn & Graubard 1998). The first test is where the groups are worth
    as many as `first_test` asks of rows; which k that is the labels do not say.
    """
    from scipy.special import betainc, ndtri, stdtrit

    effective, groups = _effective_rows(labels, number, target)
    spare = np.maximum(groups - 1, 1.0)  # degrees of freedom
    normal, t = ndtri(level), stdtrit(spare, level)
    effective = effective * (spare / (spare + 1)) * (normal / t) ** 2
    k = np.arange(1, len(labels) + 1)
    hits = effective * np.cumsum(labels) / k
    tail = np.where(hits > 0, betainc(np.maximum(hits, 1e-9), effective - hits + 1, target), 1.0)
    enough = np.flatnonzero(groups >= first_test(target, level))
    start = int(enough[0]) + 1 if len(enough) else len(labels)
    return tail <= 1 - level, start, effective / k


@lru_cache
def _least_hits(most: int, target: float, level: float) -> Counts:
    """Return (most + 1,): the fewest hits of n = 0, 1, ... that refute "no more than `target`"."""
    from scipy.stats import binom

    return np.asarray(binom.isf(1 - level, np.arange(most + 1), target), dtype=np.int64) + 1


def _labels_needed(hits: Counts, worth: Floats, target: float, level: float) -> int | None:
    """Return how many queries it would take, were accuracy at each coverage as it is here.

    The sample size of a one-sided test of a share (Fleiss 1981, 2.3), at its best coverage; a row
    counts as much as it is worth.
    """
    from scipy.special import ndtri

    n = len(hits)
    k = np.unique(np.linspace(max(1, n // 20), n, 20).astype(np.int64))
    share = (hits[k - 1] + 1) / (k + 2)
    k, share = k[share > target], share[share > target]
    if not len(k):
        return None
    spread = ndtri(level) * np.sqrt(target * (1 - target)) + ndtri(POWER) * np.sqrt(
        share * (1 - share)
    )
    taken = (spread / (share - target)) ** 2 * n / (k * worth[k - 1])
    return max(n + 1, math.ceil(float(taken.min())))


def _check(hits: int, n: int, level: float) -> None:
    if not 0 <= hits <= n:
        raise ValueError(f"hits must lie between 0 and n, got {hits} of {n}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")

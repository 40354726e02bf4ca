"""Worlds whose truth is known: labels and confidences drawn from them, and what the truth is.

A world of confidences is told by rank: a row at u in (0, 1), of which a share u is more confident,
has a confidence that never rises with u, and is right with a probability that may do anything. A
world of features has rows X, and a probability each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from experiments import Floats
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from scipy.stats import qmc

TARGET = 0.7

TABLE = 1_000_000
"""Ranks at which the truth of a world of confidences is summed up."""


def ranks(many: int) -> Floats:
    """The middles of `many` equal parts of (0, 1)."""
    return (np.arange(many) + 0.5) / many


# --- confidences ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """confidence and truth of a row by its rank u.

    groups, sizes: how many groups a draw has, and the sizes that are drawn for them, each as
        likely; the rows of a group are alike to the last bit.
    by_size: how much less likely a group is right for each row that it has more; `truth` is the
        mean over groups, each counted once, so the mean over rows is below it.
    """

    confidence: Callable[[Floats], Floats]
    truth: Callable[[Floats], Floats]
    groups: int = 500
    sizes: tuple[int, ...] = (1,)
    by_size: float = 0.0

    def draw(self, rng: Generator) -> tuple[NDArray[np.bool_], Floats, NDArray[np.int64]]:
        """Return labels, confidences and groups, (n,) each."""
        u, known = rng.random(self.groups), np.array(self.sizes)
        size = rng.choice(known, self.groups)
        right = rng.random(self.groups) < self.truth(u) + self.by_size * (known.mean() - size)
        groups = np.repeat(np.arange(self.groups), size)
        return right[groups], self.confidence(u)[groups], groups


def strong(u: Floats) -> Floats:
    """A confidence that is the truth: sigmoid(0.3 + 2.2 z), z normal; 73% could be accepted."""
    return np.asarray(expit(0.3 + 2.2 * ndtri(1 - u)))


def weak(u: Floats) -> Floats:
    """Nearly flat, 67.7% in the mean; at least 70% in the mean of the upper 75%."""
    return np.asarray(expit(0.75 + 0.25 * ndtri(1 - u)))


def rising(u: Floats) -> Floats:
    """A confidence that tells ranks apart and means nothing."""
    return 1 - u


def fifths(u: Floats) -> Floats:
    """Five values of confidence, a fifth of the rows each."""
    return 0.9 - 0.2 * np.floor(5 * u)


WORLDS = {
    "uninformative, 68% right": Ranked(rising, lambda u: np.full_like(u, 0.68)),
    "uninformative, 69.9% right": Ranked(rising, lambda u: np.full_like(u, 0.699)),
    "weakly informative": Ranked(weak, weak),
    "strong: confidence is truth": Ranked(strong, strong),
    "50 groups right together, 68%": Ranked(
        rising, lambda u: np.full_like(u, 0.68), 50, tuple(range(1, 20))
    ),
    "100 groups, larger ones worse: 69.9% of them": Ranked(
        rising, lambda u: np.full_like(u, 0.699), 100, tuple(range(1, 10)), by_size=0.04
    ),
    "five values; the upper two 72%, then 65%": Ranked(
        fifths, lambda u: np.where(u < 0.4, 0.72, 0.65)
    ),
    "all right down to half, then 35%": Ranked(rising, lambda u: np.where(u < 0.5, 1.0, 0.35)),
    "75% right down to a third, then 65%": Ranked(
        rising, lambda u: np.where(u < 1 / 3, 0.75, 0.65)
    ),
    "the surest tenth 60% right, the next 75%": Ranked(
        rising, lambda u: np.where(u < 0.1, 0.6, np.where(u < 0.4, 0.75, 0.6))
    ),
}


@lru_cache
def _table(name: str) -> tuple[Floats, Floats]:
    """Return confidences, falling, with the mean truth from the first one down to each."""
    u = ranks(TABLE)
    truth = np.cumsum(WORLDS[name].truth(u)) / np.arange(1, TABLE + 1)
    return WORLDS[name].confidence(u), truth


def population(name: str, threshold: float) -> tuple[float, float]:
    """Return (coverage, selective accuracy) of a threshold in the world of that name."""
    confidence, truth = _table(name)
    accepted = int(np.searchsorted(-confidence, -threshold, side="right"))
    return accepted / TABLE, float(truth[max(accepted, 1) - 1])


@lru_cache
def oracle_coverage(name: str) -> float:
    """Return the largest coverage at which `TARGET` is met."""
    return float((np.flatnonzero(_table(name)[1] >= TARGET)[-1] + 1) / TABLE)


# --- features ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Featured:
    """Normal features; the first moves the log odds by `slope`, from `intercept`.

    width: features, of which all but the first are noise.
    size: rows a group, which share their label and the causes of their features; `apart` is the
        standard deviation of what each row adds to a feature of its own.
    """

    intercept: float
    slope: float
    width: int
    size: int = 1
    apart: float = 0.0

    def draw(self, rng: Generator, n: int) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return features (n, width), labels and groups of n rows."""
        causes = rng.normal(size=(n // self.size, self.width))
        right = rng.random(len(causes)) < self._truth(causes)
        groups = np.repeat(np.arange(len(causes)), self.size)
        own = self.apart * rng.normal(size=(len(groups), self.width))
        return causes[groups] + own, right[groups].astype(np.int64), groups

    def fresh(self, logarithm: int = 14) -> tuple[Floats, Floats]:
        """Return features and probabilities of 2^logarithm even rows (Sobol), the same each time.

        They stand for the population: a mean over them is that of hundreds of times as many draws.
        """
        d = 2 * self.width if self.apart else self.width
        points = qmc.Sobol(d, seed=0).random_base2(logarithm)
        normal = ndtri(np.clip(points, 1e-9, 1 - 1e-9))
        causes = normal[:, : self.width]
        own = self.apart * normal[:, self.width :] if self.apart else 0.0
        return causes + own, self._truth(causes)

    def _truth(self, causes: Floats) -> Floats:
        return np.asarray(expit(self.intercept + self.slope * causes[:, 0]))

"""A certificate from groups is true of new groups, however strongly groups differ.

As of documents: each has a quality of its own, and its questions share it. The confidence tells
something of a question and nothing of its document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from experiments import Experiment, Floats, Row
from judges import rare
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit
from worlds import TARGET

from calibration.thresholds import certify

POPULATION = 200_000

Effects = Callable[[Generator, int], Floats]


def normal(rng: Generator, groups: int) -> Floats:
    """Log odds that differ by a deviation of 1."""
    return rng.normal(size=groups)


def one_in_ten_bad(rng: Generator, groups: int) -> Floats:
    """One group in ten is hardly ever right; a few groups may hold none of these."""
    return np.where(rng.random(groups) < 0.1, -3.5, 0.0)


@dataclass(frozen=True)
class Documents:
    """Groups with effects on the log odds of a row, which are `intercept` + `slope` x besides.

    groups, size: how many groups a draw has, and the rows of the mean one (1 to 2 size - 1).
    """

    effects: Effects
    intercept: float
    slope: float
    groups: int
    size: int

    def rows(self, rng: Generator, number: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return truth and confidence (n,) of rows of these groups."""
        x = rng.normal(size=len(number))
        effect = self.effects(rng, int(number.max()) + 1)[number]
        alone = self.intercept + self.slope * x
        return expit(alone + effect), expit(alone if self.slope else x)

    @lru_cache  # noqa: B019 - as many worlds as there are below
    def population(self) -> tuple[Floats, Floats]:
        """Return confidences, falling, and the mean truth from the first one down to each."""
        truth, p = self.rows(np.random.default_rng(0), np.arange(POPULATION))
        order = np.argsort(-p)
        return p[order], np.cumsum(truth[order]) / np.arange(1, POPULATION + 1)


WORLDS = {
    "15 documents that differ, 69% right": Documents(normal, 0.96, 0.0, 15, 40),
    "40 documents that differ, 69% right": Documents(normal, 0.96, 0.0, 40, 25),
    "15 documents, one in ten bad, 69% right": Documents(one_in_ten_bad, 1.13, 0.0, 15, 40),
    "40 documents, one in ten bad, 69% right": Documents(one_in_ten_bad, 1.13, 0.0, 40, 25),
    "60 documents that differ, a good confidence": Documents(normal, 0.6, 1.2, 60, 20),
    "30 documents, one in ten bad, a good confidence": Documents(one_in_ten_bad, 1.0, 1.2, 30, 30),
    "100 documents of few rows, one in ten bad": Documents(one_in_ten_bad, 1.0, 1.2, 100, 5),
}


def certificate(world: str, rng: Generator) -> tuple[float]:
    """Certify one draw; return whether the threshold is false of new groups, NaN without one."""
    drawn = WORLDS[world]
    number = np.repeat(np.arange(drawn.groups), rng.integers(1, 2 * drawn.size, drawn.groups))
    truth, p = drawn.rows(rng, number)
    found = certify(rng.random(len(number)) < truth, p, groups=number, target=TARGET)
    if found.threshold is None:
        return (float("nan"),)
    confidence, mean = drawn.population()
    accepted = int(np.searchsorted(-confidence, -found.threshold, side="right"))
    return (float(mean[max(accepted, 1) - 1] < TARGET),)


def experiments() -> list[Experiment]:
    """Hundreds of certificates a world."""
    row = Row("a certificate is false of new documents", (0,), rare)
    return [Experiment(world, 600, partial(certificate, world), (row,)) for world in WORLDS]

"""A guarantee for the context is true of new documents: its verdict, its number of passages.

Documents differ in how hard their questions are; the sufficiency tells something of a question and
nothing of its document.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from experiments import Experiment, Floats, Row
from judges import rare
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit

from calibration.thresholds import certify, fixed_sequence

DOCUMENTS, SIZE = 60, 15
POPULATION = 100_000
TARGET, MAX_LOST = 0.7, 0.1
DEPTH = 10


def ranks(rng: Generator, document: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return where the first answer of each question stands (n,), from 1, and its sufficiency.

    A question has a hazard, the same at each of the ten passages; 11 is: nowhere among them. The
    sufficiency is right of the question, but for its document's effect on the log odds.
    """
    told = rng.normal(0.2, 1.2, len(document))
    hazard = expit(told + rng.normal(size=document.max() + 1)[document])
    first = np.minimum(rng.geometric(hazard), DEPTH + 1)
    return first.astype(float), expit(told)


@lru_cache
def population() -> tuple[Floats, Floats]:
    """The same of one question each of many documents."""
    return ranks(np.random.default_rng(0), np.arange(POPULATION))


def verdicts(rng: Generator) -> tuple[float]:
    """Certify one draw; return whether the threshold is false of new documents, NaN without one."""
    document = np.repeat(np.arange(DOCUMENTS), rng.integers(1, 2 * SIZE, DOCUMENTS))
    first, told = ranks(rng, document)
    found = certify(first <= 2, 1 - (1 - told) ** 2, groups=document, target=TARGET, floor=TARGET)
    if found.threshold is None:
        return (float("nan"),)
    fresh, sure = population()
    kept = 1 - (1 - sure) ** 2 >= found.threshold
    return (float((fresh[kept] <= 2).mean() < TARGET),)


def lost(first: Floats, told: Floats) -> Floats:
    """Return whether an answer of the ten is lost, (n, m), where k passages are handed on.

    k is the first at which no more than s of sufficiency is left to gain, for rising s.
    """
    k = np.arange(1, DEPTH + 1)
    left = (1 - told[:, None]) ** k - (1 - told[:, None]) ** DEPTH
    settings = np.array([0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3])
    handed = np.stack([(left > s).sum(axis=1) + 1 for s in settings], axis=1)
    return ((first[:, None] <= DEPTH) & (first[:, None] > handed)).astype(float)


@lru_cache
def lost_by_all() -> Floats:
    """The share of the population that loses an answer by each setting, (m,)."""
    return np.asarray(lost(*population()).mean(axis=0))


def sizes(rng: Generator) -> tuple[float]:
    """Choose how many passages to hand on; return whether more answers than `MAX_LOST` are lost."""
    document = np.repeat(np.arange(DOCUMENTS), rng.integers(1, 2 * SIZE, DOCUMENTS))
    setting = fixed_sequence(lost(*ranks(rng, document)), document, risk=MAX_LOST)
    if setting < 0:
        return (float("nan"),)
    return (float(lost_by_all()[setting] > MAX_LOST),)


def experiments() -> list[Experiment]:
    """Some hundred certificates of each kind."""
    world = f"{DOCUMENTS} documents that differ"
    return [
        Experiment(
            world,
            200,
            verdicts,
            (Row("a certified context holds no answer too often", (0,), rare),),
        ),
        Experiment(world, 200, sizes, (Row("more answers are lost than certified", (0,), rare),)),
    ]

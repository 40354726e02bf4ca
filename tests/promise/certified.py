"""A certified threshold is true: selective accuracy in the population is what was promised.

The confidences are given, not fitted: `cross_fitted` has those that are.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from experiments import Experiment, Row
from judges import rare, share_of
from numpy.random import Generator
from worlds import TARGET, WORLDS, oracle_coverage, population

from calibration.thresholds import certify

STRONG = "strong: confidence is truth"
MIN_COVERAGE = 0.88
JUST_BELOW = 0.699


def certificate(world: str, rng: Generator) -> tuple[float, float]:
    """Certify one draw; return whether the threshold breaks its word, and its coverage.

    Both are the population's. Without a threshold they are NaN and 0.
    """
    y, p, groups = WORLDS[world].draw(rng)
    found = certify(y, p, groups=groups, target=TARGET)
    if found.threshold is None:
        return float("nan"), 0.0
    coverage, accuracy = population(world, found.threshold)
    return float(accuracy < TARGET), coverage


def popular(size: int, rng: Generator) -> tuple[float, float]:
    """Whether 93 labels, of which one topic has `size`, certify falsely by topics and by questions.

    Each is right with 69.9%, independently of its topic, whatever its confidence.
    """
    y, p = rng.random(93) < JUST_BELOW, rng.random(93)
    topics = np.append(np.zeros(size), np.arange(1, 94 - size))
    return tuple(
        float("nan") if certify(y, p, groups=groups, target=TARGET).threshold is None else 1.0
        for groups in (topics, None)
    )  # type: ignore[return-value]


def accepted_only(n: int, rng: Generator) -> tuple[float]:
    """Whether n labels of a random sample of what a model accepts certify falsely at its threshold.

    The model says 0.7 and more, and 69.9% are right.
    """
    found = certify(rng.random(n) < JUST_BELOW, np.full(n, TARGET), target=TARGET, floor=TARGET)
    return (float("nan") if found.threshold is None else 1.0,)


def repeats(world: str) -> int:
    """Ten thousand certificates a world; fewer where groups are weighed, which takes longer."""
    return 10_000 if WORLDS[world].sizes == (1,) else 2000


def experiments() -> list[Experiment]:
    """Thousands of certificates a world."""
    true = Row("a certified threshold breaks its word", (0,), rare)
    kept = Row(
        "its coverage, of the best there is",
        (1,),
        partial(share_of, best=oracle_coverage(STRONG), least=MIN_COVERAGE),
    )
    topics = (
        Row("a certificate is false of new topics", (0,), rare),
        Row("a certificate is false of new questions", (1,), rare),
    )
    others = [
        Experiment(f"93 questions, {size} of one topic", 2000, partial(popular, size), topics)
        for size in (10, 20)
    ]
    others += [
        Experiment(f"{n} of the accepted", 10_000, partial(accepted_only, n), (true,))
        for n in (30, 60, 150)
    ]
    return others + [
        Experiment(
            world,
            repeats(world),
            partial(certificate, world),
            (true, kept) if world == STRONG else (true,),
        )
        for world in WORLDS
    ]

"""A certified threshold is true: selective accuracy in the population is what was promised.

The confidences are given, not fitted: `cross_fitted` has those that are.
"""

from __future__ import annotations

from functools import partial

from experiments import Experiment, Row
from judges import rare, share_of
from numpy.random import Generator
from worlds import TARGET, WORLDS, oracle_coverage, population

from calibration.thresholds import certify

STRONG = "strong: confidence is truth"
MIN_COVERAGE = 0.88


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
    return [
        Experiment(
            world,
            repeats(world),
            partial(certificate, world),
            (true, kept) if world == STRONG else (true,),
        )
        for world in WORLDS
    ]

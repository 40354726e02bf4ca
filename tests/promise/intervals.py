"""An interval holds the true value as often as it says."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from experiments import Experiment, Floats, Row
from judges import about, covers, never_below, rare
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from scipy.stats import binom
from worlds import ranks

from calibration.metrics import (
    auroc_interval,
    brier_interval,
    smece,
    smece_floor,
    smece_interval,
)
from calibration.thresholds import lower_bound, upper_bound

LEVEL = 0.95
POPULATION = 2_000_000
SIZES = np.tile(np.arange(1, 6), 40)
"""Rows a group, in the worlds that have groups."""


def _truth(z: Floats) -> Floats:
    return np.asarray(expit(0.3 + z))


def _told(z: Floats) -> Floats:
    """A confidence that is too sure."""
    return np.asarray(expit(0.6 + 2 * z))


def draw(
    rng: Generator, *, grouped: bool, rows: int = 600
) -> tuple[NDArray[np.bool_], Floats, NDArray[np.int64]]:
    """Return labels, confidences and groups; grouped: 200 groups of copies, `SIZES` rows each."""
    sizes = SIZES if grouped else np.ones(rows, dtype=np.int64)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    z = rng.normal(size=len(sizes))
    y = rng.random(len(z)) < _truth(z)
    return y[groups], _told(z)[groups], groups


@lru_cache
def true_values() -> dict[str, float]:
    """The population's AUROC and Brier score by summing over ranks, and its smECE of labels."""
    z = ndtri(ranks(POPULATION))
    truth, told = _truth(z), _told(z)
    misses = 1 - truth
    below = np.cumsum(misses) - misses / 2
    y = np.random.default_rng(0).random(POPULATION) < truth
    return {
        "AUROC": float((truth * below).sum() / truth.sum() / misses.sum()),
        "Brier": float((truth * (1 - told) ** 2 + misses * told**2).mean()),
        "smECE": smece(y, told),
    }


def _holds(name: str, interval: tuple[float, float]) -> float:
    low, high = interval
    return float(low <= true_values()[name] <= high)


def bootstrap(grouped: bool, by_group: bool, rng: Generator) -> tuple[float, float]:
    """Whether the intervals of one draw hold the true AUROC and Brier score.

    by_group: whether whole groups are resampled.
    """
    y, p, groups = draw(rng, grouped=grouped)
    of = groups if by_group else None
    return (
        _holds("AUROC", auroc_interval(y, p, of)),
        _holds("Brier", brier_interval(y, p, of)),
    )


def bootstrap_smece(rng: Generator) -> tuple[float]:
    """Whether the interval of one draw holds the true smECE, of a model that has one."""
    y, p, _ = draw(rng, grouped=False)
    seed = int(rng.integers(2**31))
    return (_holds("smECE", smece_interval(y, p, draws=200, random_state=seed)),)


@lru_cache
def smece_of(slope: float) -> float:
    """The true smECE where sigmoid(z) is said and sigmoid(slope z) is true: 0 where slope is 1."""
    if slope == 1:
        return 0.0
    z = 0.3 + 1.2 * ndtri(ranks(POPULATION))
    return smece(np.random.default_rng(0).random(POPULATION) < expit(slope * z), expit(z))


def nearly_exact(slope: float, rows: int, rng: Generator) -> tuple[float, float]:
    """Whether the interval of smECE, and its upper end alone, hold the truth near 0."""
    z, true = rng.normal(0.3, 1.2, rows), smece_of(slope)
    y, seed = rng.random(rows) < expit(slope * z), int(rng.integers(2**31))
    low, high = smece_interval(y, expit(z), draws=200, random_state=seed)
    return float(low <= true <= high), float(high >= true)


@lru_cache
def sharp_values() -> tuple[float, float]:
    """The AUROC and the Brier score of `sharp`, by summing over ranks."""
    z = 5 * ndtri(ranks(POPULATION))
    truth, told = expit(0.3 + z), expit(0.6 + 1.5 * z)
    below = np.cumsum(1 - truth) - (1 - truth) / 2
    return (
        float((truth * below).sum() / truth.sum() / (1 - truth).sum()),
        float((truth * (1 - told) ** 2 + (1 - truth) * told**2).mean()),
    )


def sharp(rng: Generator) -> tuple[float, float]:
    """Whether the intervals of 50 rows with an AUROC of 0.96 hold it, and the Brier score."""
    z = 5 * rng.normal(size=50)
    y, p = rng.random(50) < expit(0.3 + z), expit(0.6 + 1.5 * z)
    found = [auroc_interval(y, p), brier_interval(y, p)]
    area, score = (low <= t <= high for t, (low, high) in zip(sharp_values(), found, strict=True))
    return float(area), float(score)


def binomial(rng: Generator) -> tuple[float, float]:
    """The exact coverage of lower and upper bound, at the edge of one of them, where it is worst.

    All outcomes of 5 to 500 cases, weighed by their chances; no labels are drawn.
    """
    n = int(rng.choice([5, 20, 100, 500]))
    hits, level = int(rng.integers(1, n + 1)), float(rng.choice([0.9, LEVEL]))
    share = lower_bound(hits, n, level=level) * (1 - 1e-9)
    chances = binom.pmf(np.arange(n + 1), n, share)
    low = np.array([lower_bound(h, n, level=level) for h in range(n + 1)])
    high = np.array([upper_bound(h, n, level=level) for h in range(n + 1)])
    # by symmetry the upper bound is worst at 1 - share, where a count of hits is one of misses
    return (
        float(chances[low <= share].sum()) + LEVEL - level,
        float(chances[::-1][high >= 1 - share].sum()) + LEVEL - level,
    )


def floor(rng: Generator) -> tuple[float]:
    """Whether exactly calibrated labels have an smECE above the 95% point of `smece_floor`."""
    p = expit(rng.normal(0.3, 0.5) + 1.2 * rng.normal(size=500))
    y = rng.random(500) < p
    return (float(smece(y, p) > smece_floor(p, random_state=int(rng.integers(2**31)))[1]),)


def floor_of_groups(rng: Generator) -> tuple[float]:
    """Whether 60 groups of five copies, exactly calibrated, are above their floor's 95% point."""
    group = np.repeat(np.arange(60), 5)
    p = expit(rng.normal(0.3, 1.2, 60))[group]
    y, seed = rng.random(60)[group] < p, int(rng.integers(2**31))
    return (float(smece(y, p) > smece_floor(p, groups=group, y=y, random_state=seed)[1]),)


def experiments() -> list[Experiment]:
    """Intervals of metrics, binomial bounds, and the floor of smECE."""
    near = (
        Row("interval of smECE holds the truth", (0,), covers),
        Row("upper end of smECE is above it", (1,), partial(covers, level=0.975, least=0.96)),
    )
    both = (
        Row("interval of AUROC holds the truth", (0,), covers),
        Row("interval of the Brier score holds it", (1,), covers),
    )
    exact = partial(never_below, least=LEVEL)
    return [
        Experiment("600 rows, too sure", 400, partial(bootstrap, False, True), both),
        Experiment("200 groups of 1 to 5 copies", 400, partial(bootstrap, True, True), both),
        Experiment(
            "600 rows, too sure",
            300,
            bootstrap_smece,
            (Row("interval of smECE holds the truth", (0,), covers),),
        ),
        *(
            Experiment(f"{n} rows, truth sigmoid({a} z)", 200, partial(nearly_exact, a, n), near)
            for a, n in ((1.0, 200), (1.0, 1000), (0.9, 200), (0.9, 1000), (0.6, 1000))
        ),
        Experiment("50 rows, AUROC 0.96", 400, sharp, both),
        Experiment(
            "5 to 500 cases, the worst shares",
            400,
            binomial,
            (
                Row("exact lower bound is below the truth", (0,), exact),
                Row("exact upper bound is above the truth", (1,), exact),
            ),
        ),
        Experiment(
            "500 rows, exactly calibrated",
            300,
            floor,
            (Row("smECE is above its floor's 95% point", (0,), partial(about, rate=1 - LEVEL)),),
        ),
        Experiment(
            "60 groups of 5 copies, exactly calibrated",
            150,
            floor_of_groups,
            (Row("smECE is above its floor's 95% point", (0,), rare),),
        ),
    ]

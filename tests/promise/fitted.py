"""A calibrated confidence is true: of fresh rows that get about 0.7, about 70% are right."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from experiments import Experiment, Floats, Row
from judges import centred, small
from numpy.random import Generator
from worlds import Featured

from calibration.fitting import fit_two_stage
from calibration.metrics import smece, smece_floor
from calibration.score_fitting import SCORE_FITS

WORLD = Featured(0.3, 1.2, 3)
FRESH = 3000
FLOOR_DRAWS = 50

BOUNDS = {200: (0.03, 0.08), 1000: (0.02, 0.05)}
"""By rows fitted on: how far from its word a confidence near 0.7 may be, and the mean smECE."""


@lru_cache
def _fresh() -> tuple[Floats, Floats]:
    return WORLD.fresh()


def calibration(second_stage: str, n: int, rng: Generator) -> tuple[float, float, float]:
    """Fit on n rows; return the gap, smECE, and whether that is within chance.

    The gap is the mean of truth less confidence, in the population, of the rows from 0.65 to 0.75;
    NaN where there is none. smECE and its 95% point under exact calibration are of 3,000 rows.
    """
    x, y, groups = WORLD.draw(rng, n)
    found = fit_two_stage(x, y, groups, second_stage=second_stage, C=1.0)[0]
    population, truth = _fresh()
    told = found.predict(population)
    near = np.abs(told - 0.7) <= 0.05
    gap = float((truth - told)[near].mean()) if near.any() else float("nan")
    rows, labels, _ = WORLD.draw(rng, FRESH)
    p = found.predict(rows)
    error, chance = smece(labels, p), smece_floor(p, draws=FLOOR_DRAWS)[1]
    return gap, error, float(error <= chance)


def experiments() -> list[Experiment]:
    """Each second stage, on few rows and on many."""
    found = []
    for n, (gap, error) in BOUNDS.items():
        for second_stage in SCORE_FITS:
            name = "platt" if second_stage == "logistic" else second_stage
            rows = (
                Row(f"{name}: truth less confidence near 0.7", (0,), partial(centred, most=gap)),
                Row(f"{name}: smECE of 3,000 rows", (1, 2), partial(small, most=error)),
            )
            world = f"3 features, fitted on {n:,} rows"
            found.append(Experiment(world, 200, partial(calibration, second_stage, n), rows))
    return found

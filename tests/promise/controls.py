"""What must break: the same checks with an assumption taken away, so that they are known to see."""

from __future__ import annotations

from functools import partial

import numpy as np
from alarms import drift, grouped_drift
from experiments import Experiment, Floats, Judge, Row
from intervals import bootstrap
from judges import misses, often, seen
from numpy.random import Generator
from worlds import TARGET, WORLDS, Featured, population

from calibration.fitting import fit_logistic
from calibration.sequence_tests import rows_to_begin_with
from calibration.sequential import CalibrationMonitor
from calibration.thresholds import certify

CLUSTERED = "50 groups right together, 68%"
STRONG = "strong: confidence is truth"
NOISE = Featured(0.754, 0.0, 60)


def without_groups(rng: Generator) -> tuple[float]:
    """Whether rows that are right together, counted each for itself, get a false certificate."""
    y, p, _ = WORLDS[CLUSTERED].draw(rng)
    found = certify(y, p, target=TARGET)
    if found.threshold is None:
        return (float("nan"),)
    return (float(population(CLUSTERED, found.threshold)[1] < TARGET),)


def rare_large_groups(rng: Generator) -> tuple[float]:
    """Whether 200 groups are certified of which one in 200 has sixty rows, all wrong.

    The others are single rows, 85% right: 65% of all rows. Every third draw has no large group,
    and nothing in it tells that there are any.
    """
    large = rng.random(200) < 1 / 200
    y = (rng.random(200) < 0.85) & ~large
    groups = np.repeat(np.arange(200), np.where(large, 60, 1))
    found = certify(y[groups], rng.random(200)[groups], groups=groups, target=TARGET)
    return (float(found.threshold is not None),)


def on_its_own_rows(rng: Generator) -> tuple[float]:
    """Whether a map of 60 features that say nothing is certified on the 500 rows it was fitted on.

    No threshold deserves it: 68% of all rows are right.
    """
    x, y, _ = NOISE.draw(rng, 500)
    p = fit_logistic(x, y, C=10.0).predict(x)
    return (float(certify(y, p, target=TARGET).threshold is not None),)


def without_a_test(rng: Generator) -> tuple[float]:
    """Whether the lowest threshold at which 70% *were* right is one at which fewer are."""
    y, p, _ = WORLDS[STRONG].draw(rng)
    order = np.argsort(-p)
    share = np.cumsum(y[order]) / np.arange(1, len(y) + 1)
    enough = np.flatnonzero(share >= TARGET)
    enough = enough[enough + 1 >= rows_to_begin_with(TARGET, 0.95, len(y))[1]]
    if not len(enough):
        return (float("nan"),)
    return (float(population(STRONG, p[order][enough[-1]])[1] < TARGET),)


def broken_promise(rng: Generator) -> tuple[float]:
    """Whether a watch alarms within 200 labels that are right in 43% where 70% was said."""
    p: Floats = np.full(200, 0.7)
    return (float(CalibrationMonitor.start().update(rng.random(200) < 0.43, p).alarmed),)


def experiments() -> list[Experiment]:
    """A control a promise."""

    def control(promise: str, judge: Judge = often, column: int = 0) -> Row:
        return Row(promise, (column,), judge, control=True)

    false = "a certified threshold breaks its word"
    return [
        Experiment(f"{CLUSTERED}, groups not given", 1000, without_groups, (control(false),)),
        Experiment(
            "large groups, all wrong, rarer than the sample",
            300,
            rare_large_groups,
            (control(false),),
        ),
        Experiment(
            "60 features of noise, certified in-sample", 300, on_its_own_rows, (control(false),)
        ),
        Experiment(f"{STRONG}, no test", 1000, without_a_test, (control(false),)),
        Experiment(
            "200 groups of 1 to 5 copies, groups not given",
            400,
            partial(bootstrap, True, False),
            (
                control("interval of AUROC holds the truth", misses, 0),
                control("interval of the Brier score holds it", misses, 1),
            ),
        ),
        Experiment(
            "2 of 40 features moved by half a deviation",
            400,
            partial(drift, 600, 200, 0.5),
            (control("the drift alarm is silent", seen),),
        ),
        Experiment(
            "rephrasings, groups not given",
            400,
            partial(grouped_drift, False),
            (control("the drift alarm fires"),),
        ),
        Experiment(
            "said 70%, right 43%", 400, broken_promise, (control("the watch is silent", seen),)
        ),
    ]

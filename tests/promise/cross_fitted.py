"""A certificate on out-of-fold confidences is true, of the maps that gave them and of the last one.

As `rerank` makes it: maps of five folds give the confidences, `certify` the threshold, and the map
that is kept is refitted on all rows. The threshold is then used with a map that it was not
certified on, so its word is judged for that map too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from experiments import Experiment, Floats, Row
from judges import rare
from numpy.random import Generator
from worlds import TARGET, Featured

from calibration.fitting import Folds, Rows, cross_fit_two_stage, fit_two_stage
from calibration.maps import LogisticMap, TwoStageMap
from calibration.selection import grouped_folds
from calibration.thresholds import certify

ROWS = 500
FOLDS = 5
C = 0.1

BIASED = "100 labels by two, a pooled map far too sure"

WORLDS = {
    "5 features that say nothing, 68% right": Featured(0.754, 0.0, 5),
    "5 features, many confidences near 70%": Featured(0.8, 0.5, 5),
    "30 features, 29 of them noise": Featured(0.6, 1.0, 30),
    "rephrasings by four, right together": Featured(0.8, 0.5, 5, size=4, apart=0.5),
    BIASED: Featured(0.6, 1.0, 5, size=2, apart=0.5),
}

OF_OTHER_SETS = LogisticMap((1.0, 0.0, 0.0, 0.0, 0.0), 2.6, (0.0,) * 5, (1.0,) * 5)
"""A pooled map whose log odds are 2 too high."""


@lru_cache
def _fresh(world: str) -> tuple[Floats, Floats]:
    return WORLDS[world].fresh()


def breaks_its_word(world: str, maps: Sequence[TwoStageMap], threshold: float) -> bool:
    """Whether of what these maps accept in the population, all alike, too little is right."""
    x, truth = _fresh(world)
    accepted = np.array([m.predict(x) >= threshold for m in maps])
    return bool((accepted @ truth).sum() < TARGET * accepted.sum())


def certificate(world: str, rng: Generator) -> tuple[float, float]:
    """Fit, certify and refit one draw; return whether the word is broken, (out of fold, refitted).

    NaN twice where there is no certificate. One draw in ten makes sure that the maps of the folds,
    fitted here to be judged, are those of `cross_fit_two_stage`.
    """
    x, y, groups = WORLDS[world].draw(rng, 100 if world == BIASED else ROWS)
    seed, reference = int(rng.integers(2**31)), OF_OTHER_SETS if world == BIASED else None
    how: dict[str, Any] = {"folds": FOLDS, "C": C, "random_state": seed, "reference": reference}
    fit: Callable[..., Any] = partial(fit_two_stage, **how)
    fold = grouped_folds(groups, FOLDS, random_state=seed)
    maps, p = [], np.empty(len(y))
    for k in range(FOLDS):
        held = fold == k
        maps.append(fit(x[~held], y[~held], groups[~held])[0])
        p[held] = maps[k].predict(x[held])
    if rng.random() < 0.1:
        same = cross_fit_two_stage(["logistic"], Rows.of(x, y, groups), Folds(**how))
        np.testing.assert_array_equal(p, same["logistic"])
    found = certify(y, p, groups=groups, target=TARGET, floor=TARGET)
    if found.threshold is None:
        return float("nan"), float("nan")
    last = fit(x, y, groups)[0]
    return (
        float(breaks_its_word(world, maps, found.threshold)),
        float(breaks_its_word(world, [last], found.threshold)),
    )


def experiments() -> list[Experiment]:
    """Some hundreds of certificates a world, each with a nested fit."""
    rows = (
        Row("cross-fitted: false of the maps of the folds", (0,), rare),
        Row("cross-fitted: false of the map that is kept", (1,), rare),
    )
    return [Experiment(world, 400, partial(certificate, world), rows) for world in WORLDS]

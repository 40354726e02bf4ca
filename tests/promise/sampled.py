"""Labels of a stratified sample tell of all queries, without bias, and more than random ones."""

from __future__ import annotations

from functools import partial

import numpy as np
from experiments import Experiment, Floats, Found, Row
from judges import centred, covers
from numpy.random import Generator

from calibration.label_selection import choose_rows, weighted_mean

QUERIES, LABELS = 3000, 80
THRESHOLD = 0.7


def sample(rng: Generator, *, off: float) -> tuple[float, float, float]:
    """Label one sample of each kind; return our gap, whether our interval holds, and theirs.

    off: by how much the confidences say too much.
    """
    p = rng.beta(1.5, 1.0, QUERIES)
    y = rng.random(QUERIES) < np.clip(p - off, 0, 1)
    accepted = p >= THRESHOLD
    truth = float(y[accepted].mean())
    drawn = choose_rows(p, LABELS, random_state=int(rng.integers(2**31)))
    kept = accepted[drawn.rows]
    found = weighted_mean(y[drawn.rows], drawn.weights, among=kept)
    plain = rng.choice(QUERIES, LABELS, replace=False)
    other = float(y[plain][accepted[plain]].mean())
    return found.mean - truth, float(found.low <= truth <= found.high), other - truth


def narrower(found: Floats, *, least: float) -> Found:
    """Whether the gaps of the first column are smaller than the second's by this factor."""
    ours, theirs = np.sqrt((found**2).mean(axis=0))
    measured = f"{theirs / ours:.2f} times ({ours:.3f} against {theirs:.3f})"
    return Found(measured, f">= {least:.2f}", bool(theirs / ours >= least))


def experiments() -> list[Experiment]:
    """Confidences that are true, and such that say too much."""
    return [
        Experiment(
            f"{LABELS} of {QUERIES:,} queries, confidence {off:g} too high",
            400,
            partial(sample, off=off),
            (
                Row("accuracy at 0.7 from a sample: bias", (0,), partial(centred, most=0.01)),
                Row("its interval", (1,), covers),
                Row("narrower than at random", (0, 2), partial(narrower, least=1.2)),
            ),
        )
        for off in (0.0, 0.1)
    ]

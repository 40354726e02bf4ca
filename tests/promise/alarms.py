"""Alarms are silent where nothing is wrong: the drift alarm, and the watches on late labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from experiments import Experiment, Floats, Row
from judges import rare
from numpy.random import Generator
from numpy.typing import NDArray
from worlds import Featured

from calibration.drift import alarm, sketch
from calibration.fitting import fit_two_stage
from calibration.sequential import TOLERANCE, AccuracyMonitor, CalibrationMonitor

LEVEL = 0.05
WIDTH = 40
NAMES = tuple(f"feature {i}" for i in range(WIDTH))
LABELS = 2000
LOOKS = 20


# --- drift ------------------------------------------------------------------------------------


def features(rng: Generator, n: int) -> Floats:
    """Rows (n, 40) that hang together by four common causes."""
    x = rng.normal(size=(n, 4))[:, np.arange(WIDTH) % 4] + rng.normal(size=(n, WIDTH))
    return np.asarray(x / np.sqrt(2))


def tied(x: Floats) -> Floats:
    """Twelve of the features cut at 0, rounded, constant, or of two values."""
    x = x.copy()
    x[:, 10:16] = np.maximum(x[:, 10:16], 0)
    x[:, 16:20] = np.round(x[:, 16:20])
    x[:, 20] = 0
    x[:, 21] = x[:, 21] > 1.8
    return x


def drift(fitted: int, new: int, shift: float, rng: Generator) -> tuple[float]:
    """Whether a window fires in which two features have moved by `shift` standard deviations."""
    known, window = tied(features(rng, fitted)), features(rng, new)
    window[:, :2] += shift
    return (float(alarm(sketch(known, NAMES), tied(window), level=LEVEL).fired),)


def grouped_drift(by_group: bool, rng: Generator) -> tuple[float]:
    """Whether a window of rephrasings fires, counted by group or by row; nothing has changed."""
    (known, theirs), (window, ours) = _rephrasings(rng, 200), _rephrasings(rng, 80)
    fitted = sketch(known, NAMES, theirs if by_group else None)
    fired = alarm(fitted, window, level=LEVEL, groups=ours if by_group else None).fired
    return (float(fired),)


def _rephrasings(rng: Generator, questions: int) -> tuple[Floats, NDArray[np.int64]]:
    groups = np.repeat(np.arange(questions), rng.integers(1, 8, questions))
    x = 0.95 * features(rng, questions)[groups] + 0.3 * features(rng, len(groups))
    return tied(x), groups


# --- watches ----------------------------------------------------------------------------------


def always(p: float, rng: Generator) -> Floats:
    """One confidence for all."""
    return np.full(LABELS, p)


def uniform(rng: Generator) -> Floats:
    """Any confidence."""
    return rng.random(LABELS)


def at_the_ends(rng: Generator) -> Floats:
    """Confidences near 0 and 1, and some that are 0 or 1."""
    return np.round(rng.beta(0.05, 0.05, LABELS), 6)


def watch(confidences: Callable[[Generator], Floats], rng: Generator) -> tuple[float, float]:
    """Whether a watch over 2,000 labels of exactly calibrated confidences ever alarms, tolerating
    nothing; and whether one does that tolerates what the confidences are then off by.
    """
    p = confidences(rng)
    exact = CalibrationMonitor.start(LEVEL, tolerance=0).update(rng.random(len(p)) < p, p)
    off = np.clip(p + rng.choice([-TOLERANCE, TOLERANCE]), 0, 1)
    near = CalibrationMonitor.start(LEVEL).update(rng.random(len(p)) < off, p)
    return float(exact.alarmed), float(near.alarmed)


MAPS = Featured(0.3, 1.2, 3)


def fitted_watch(rows: int, rng: Generator) -> tuple[float]:
    """Whether a watch over 2,000 labels of a map that was fitted on so many rows ever alarms."""
    x, y, _ = MAPS.draw(rng, rows)
    learned = fit_two_stage(x, y, C=1.0)[0]
    x, y, _ = MAPS.draw(rng, LABELS)
    return (float(CalibrationMonitor.start(LEVEL).update(y, learned.predict(x)).alarmed),)


def accuracy_watch(lowest: float, highest: float, rng: Generator) -> tuple[float, float, float]:
    """Watch an accuracy that goes from `highest` to `lowest` and back, at 0.7 and above.

    Returns (whether it ever alarms, whether ever, at 20 looks, the mean accuracy so far is above
    the upper bound, and below the lower one).
    """
    truth = lowest + (highest - lowest) * (1 + np.cos(np.arange(LABELS) / 150)) / 2
    y, mean = rng.random(LABELS) < truth, np.cumsum(truth) / np.arange(1, LABELS + 1)
    looks = np.unique(np.geomspace(1, LABELS, LOOKS).astype(int))
    state, above, below, before = AccuracyMonitor.start(0.7, LEVEL), False, False, 0
    for look in looks.tolist():
        state = state.update(y[before:look])
        above |= mean[look - 1] > state.upper
        below |= mean[look - 1] < state.lower
        before = look
    return float(state.alarmed), float(above), float(below)


def experiments() -> list[Experiment]:
    """Hundreds of windows and streams in which nothing is wrong."""
    fires = (Row("the drift alarm fires", (0,), rare),)
    ever = (
        Row("the watch ever alarms", (0,), rare),
        Row("off by its tolerance, it ever alarms", (1,), rare),
    )
    streams: dict[str, Callable[[Generator], Floats]] = {
        "always 0.7": partial(always, 0.7),
        "any confidence": uniform,
        "near 0 and 1": at_the_ends,
    }
    return [
        Experiment("600 and 200 rows, 40 features", 800, partial(drift, 600, 200, 0.0), fires),
        Experiment("100 and 30 rows, 40 features", 800, partial(drift, 100, 30, 0.0), fires),
        Experiment("rephrasings by group", 800, partial(grouped_drift, True), fires),
        *(
            Experiment(f"2,000 calibrated labels, {name}", 1000, partial(watch, stream), ever)
            for name, stream in streams.items()
        ),
        *(
            Experiment(
                f"2,000 labels of a map of {rows:,} rows",
                200,
                partial(fitted_watch, rows),
                (Row("the watch ever alarms", (0,), rare),),
            )
            for rows in (250, 1000)
        ),
        *(
            Experiment(
                name,
                600,
                partial(accuracy_watch, low, high),
                (
                    Row("the accuracy watch ever alarms", (0,), rare),
                    Row("its upper bound is ever below the mean accuracy", (1,), rare),
                    Row("its lower bound is ever above it", (2,), rare),
                ),
            )
            for name, low, high in (
                ("accuracy 70%, the target", 0.7, 0.7),
                ("accuracy from 95% to 70% and back", 0.7, 0.95),
            )
        ),
    ]

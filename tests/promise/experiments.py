"""Experiments over many draws: each repeat has its own seed, so that any pool gives one table.

It knows nothing of what is drawn or promised.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Floats = NDArray[np.float64]

PARTS = 40
"""Parts that the repeats of one experiment are dealt out in, at most."""

QUICK = 20
"""A quick run has this many times fewer repeats, but `MIN_REPEATS` at least."""

MIN_REPEATS = 48


class Found(NamedTuple):
    """What was measured, what it may be, and whether it is."""

    measured: str
    bound: str
    holds: bool


Judge = Callable[[Floats], Found]


@dataclass(frozen=True)
class Row:
    """One promise of an experiment: `judge` gets these columns of its numbers, (repeats, columns).

    control: the promise must break here, because an assumption is broken.
    """

    promise: str
    columns: tuple[int, ...]
    judge: Judge
    control: bool = False


@dataclass(frozen=True)
class Experiment:
    """A world, how often it is drawn in a full run, and what one draw measures.

    draw: a function that can be pickled; as many numbers each time, NaN where nothing was said.
    """

    world: str
    repeats: int
    draw: Callable[[Generator], Sequence[float]]
    rows: tuple[Row, ...]

    def many(self, *, quick: bool) -> int:
        """How many repeats such a run has."""
        return max(MIN_REPEATS, self.repeats // QUICK) if quick else self.repeats


def run(
    experiments: Sequence[Experiment], *, quick: bool, workers: int | None = None
) -> Iterator[tuple[Experiment, Floats]]:
    """Yield each experiment with its numbers (repeats, columns), in order, from a process pool.

    workers: processes; None is one a core.
    """
    parts = [
        (number, rows)
        for number, experiment in enumerate(experiments)
        for rows in np.array_split(np.arange(experiment.many(quick=quick)), PARTS)
        if len(rows)
    ]
    tasks = [(experiments[number].draw, _seed(experiments[number]), rows) for number, rows in parts]
    with ProcessPoolExecutor(workers, initializer=_one_thread) as pool:
        done = zip(parts, pool.map(_part, tasks), strict=True)
        for number, found in groupby(done, key=lambda item: item[0][0]):
            yield experiments[number], np.concatenate([numbers for _, numbers in found])


def _seed(experiment: Experiment) -> int:
    words = (experiment.world, *(row.promise for row in experiment.rows))
    return zlib.crc32("\n".join(words).encode())


def _part(task: tuple[Callable[[Generator], Sequence[float]], int, NDArray[np.int64]]) -> Floats:
    draw, seed, repeats = task
    return np.array([draw(np.random.default_rng([seed, i])) for i in repeats.tolist()], dtype=float)


def _one_thread() -> None:
    threadpool_limits(limits=1)

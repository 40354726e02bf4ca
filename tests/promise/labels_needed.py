"""How many labels a certificate takes: the table of docs/your-labels.md, made again.

    python tests/promise/labels_needed.py [--draws 300]

A perfectly calibrated confidence, whose log odds are normal, by the share of right answers and by
AUROC. `all`: questions drawn at random, labelled, and certified (`certify`). `accepted`: a random
sample of those with a confidence of at least 0.7, and one test at 0.7. The least of a grid of
numbers from which on four draws in five are certified; and what 50 to 400 labels are worth. With
`--judge`, instead: labels of accepted questions beside the verdicts of a judge on 1,000 of these,
which is wrong as often as the head says, whatever the question.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
from experiments import Floats
from numpy.random import Generator
from scipy.optimize import fsolve
from scipy.special import expit, ndtri
from worlds import TARGET, ranks

from calibration.label_selection import choose_judged, judged_strata
from calibration.prediction_powered import Strata
from calibration.thresholds import certify

WORLDS = [(rate, auroc) for rate in (0.4, 0.6) for auroc in (0.75, 0.85, 0.95)]
GRID = np.unique(np.geomspace(10, 2500, 36).astype(int))
LABELS = (50, 100, 200, 400)
ENOUGH, LEVEL = 0.8, 0.95
JUDGED = 1000
ERRORS = (0.05, 0.1, 0.2, 0.3)


def auroc_of(truth: Floats) -> float:
    """The AUROC of probabilities (n,) that are true."""
    rising = np.sort(truth)
    wrong = np.cumsum(1 - rising) - (1 - rising) / 2
    return float((rising * wrong).sum() / (rising.sum() * (1 - rising).sum()))


def log_odds_of(rate: float, auroc: float) -> tuple[float, float]:
    """Mean and deviation of normal log odds with this share of right answers and this AUROC."""
    z = ndtri(ranks(20_000))

    def gaps(x: Floats) -> list[float]:
        truth = expit(x[0] + np.exp(x[1]) * z)
        return [truth.mean() - rate, auroc_of(truth) - auroc]

    mean, log_deviation = fsolve(gaps, [0.0, 0.5])
    return float(mean), float(np.exp(log_deviation))


def certified(
    world: tuple[float, float], n: int, rng: Generator, draws: int, *, only_accepted: bool
) -> float:
    """The share of draws of n labels that are certified."""
    given = 0
    for _ in range(draws):
        p = expit(world[0] + world[1] * rng.normal(size=(60 if only_accepted else 1) * n))
        if only_accepted:
            p = p[p >= TARGET][:n]
        y = rng.random(len(p)) < p
        told = np.full(len(p), TARGET) if only_accepted else p
        given += certify(y, told, target=TARGET, floor=TARGET).threshold is not None
    return given / draws


def judged(
    world: tuple[float, float], n: int, rng: Generator, draws: int, *, error: float
) -> float:
    """The share of draws of n accepted questions that are certified beside a judge's verdicts."""
    given = 0
    for _ in range(draws):
        p = expit(world[0] + world[1] * rng.normal(size=60 * JUDGED))
        p = p[p >= TARGET][:JUDGED]
        y = rng.random(len(p)) < p
        strata = judged_strata(p, np.where(rng.random(len(p)) < error, ~y, y), TARGET)
        rows = choose_judged(strata, n, random_state=int(rng.integers(2**31))).rows
        found = Strata.of(y[rows], strata[rows], np.bincount(strata, minlength=6))
        given += found.tail(TARGET) <= 1 - LEVEL
    return given / draws


def needed(share_of: Callable[[int, Generator], float]) -> str:
    """The least number of labels that do four times in five, by bisection of the grid."""
    low, high = -1, len(GRID)
    while high - low > 1:
        middle = (low + high) // 2
        share = share_of(int(GRID[middle]), np.random.default_rng(middle))
        low, high = (low, middle) if share >= ENOUGH else (middle, high)
    return f"{GRID[high]:,}" if high < len(GRID) else f"above {GRID[-1]:,}"


def beside(draws: int) -> None:
    """Print the table with a judge in Markdown."""
    head = ["right answers", "AUROC", "no judge", *(f"wrong in {e:.0%}" for e in ERRORS)]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for rate, auroc in WORLDS:
        world = log_odds_of(rate, auroc)
        cells = [f"{rate:.0%}", f"{auroc:.2f}"]
        cells.append(needed(partial(certified, world, draws=draws, only_accepted=True)))
        cells += [needed(partial(judged, world, draws=draws, error=e)) for e in ERRORS]
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print both tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args()
    draws = options.draws
    if options.judge:
        beside(draws)
        return
    head = ["right answers", "AUROC", "all questions", "accepted only"]
    print(f"| {' | '.join([*head, *(f'certified with {n}' for n in LABELS)])} |")
    print("|" + "---|" * (len(head) + len(LABELS)))
    for rate, auroc in WORLDS:
        world = log_odds_of(rate, auroc)
        cells = [f"{rate:.0%}", f"{auroc:.2f}"]
        cells += [
            needed(partial(certified, world, draws=draws, only_accepted=only))
            for only in (False, True)
        ]
        for n in LABELS:
            rng = np.random.default_rng(n)
            cells.append(f"{certified(world, n, rng, draws, only_accepted=False):.0%}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""How many labels a certificate takes: the table of docs/your-labels.md, made again.

    python tests/promise/labels_needed.py [--draws 300]

A perfectly calibrated confidence, whose log odds are normal, by the share of right answers and by
AUROC. `all`: questions drawn at random, labelled, and certified (`certify`). `accepted`: a random
sample of those with a confidence of at least 0.7, and one test at 0.7. The least of a grid of
numbers from which on four draws in five are certified; and what 50 to 400 labels are worth.
"""

from __future__ import annotations

import argparse

import numpy as np
from experiments import Floats
from numpy.random import Generator
from scipy.optimize import fsolve
from scipy.special import expit, ndtri
from worlds import TARGET, ranks

from calibration.thresholds import certify

WORLDS = [(rate, auroc) for rate in (0.4, 0.6) for auroc in (0.75, 0.85, 0.95)]
GRID = np.unique(np.geomspace(10, 2500, 36).astype(int))
LABELS = (50, 100, 200, 400)
ENOUGH = 0.8


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


def needed(world: tuple[float, float], draws: int, *, only_accepted: bool) -> str:
    """The least number of labels that do four times in five, by bisection of the grid."""
    low, high = -1, len(GRID)
    while high - low > 1:
        middle = (low + high) // 2
        rng = np.random.default_rng(middle)
        share = certified(world, int(GRID[middle]), rng, draws, only_accepted=only_accepted)
        low, high = (low, middle) if share >= ENOUGH else (middle, high)
    return f"{GRID[high]:,}" if high < len(GRID) else f"above {GRID[-1]:,}"


def main() -> None:
    """Print both tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=300)
    draws = parser.parse_args().draws
    head = ["right answers", "AUROC", "all questions", "accepted only"]
    print(f"| {' | '.join([*head, *(f'certified with {n}' for n in LABELS)])} |")
    print("|" + "---|" * (len(head) + len(LABELS)))
    for rate, auroc in WORLDS:
        world = log_odds_of(rate, auroc)
        cells = [f"{rate:.0%}", f"{auroc:.2f}"]
        cells += [needed(world, draws, only_accepted=only) for only in (False, True)]
        for n in LABELS:
            rng = np.random.default_rng(n)
            cells.append(f"{certified(world, n, rng, draws, only_accepted=False):.0%}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

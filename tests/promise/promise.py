"""Does what is promised hold? Worlds with known truth, hundreds of repeats, one table.

    python tests/promise/promise.py [--quick] [--only certified intervals] [--workers 2]

A row a promise: in which world, how often it was drawn, what was measured, what may be. The last
section takes an assumption away and must break. Ends with status 1 where a promise is broken, or a
control is not. The seeds are fixed: the same run prints the same table; times go to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from types import ModuleType

import alarms
import certified
import contexts
import controls
import cross_fitted
import cross_reported
import fitted
import intervals
import judged
import new_groups
import promoted
import sampled
from experiments import Experiment, Floats, Row, run

MODULES = (
    certified,
    new_groups,
    cross_fitted,
    cross_reported,
    fitted,
    intervals,
    alarms,
    promoted,
    contexts,
    sampled,
    judged,
    controls,
)
SECTIONS: dict[str, ModuleType] = {module.__name__: module for module in MODULES}

WIDTHS = (47, 50, 7, 34, 26)
HEAD = ("promise", "world", "repeats", "measured", "bound", "holds")


def line(cells: tuple[str, ...]) -> str:
    """One line of the table."""
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=False)]
    return "  ".join([*padded, *cells[len(WIDTHS) :]])


def verdict(row: Row, holds: bool) -> tuple[str, bool]:
    """The last cell, and whether it is as it should be."""
    if row.control:
        return ("NOT BROKEN: not seen", False) if holds else ("broken as it should be", True)
    return ("yes", True) if holds else ("NO", False)


def judged_lines(experiment: Experiment, numbers: Floats) -> list[tuple[str, bool]]:
    """The lines of one experiment, each with whether it is as it should be."""
    lines = []
    for row in experiment.rows:
        found = row.judge(numbers[:, row.columns])
        word, good = verdict(row, found.holds)
        many = f"{len(numbers):,}"
        cells = (row.promise, experiment.world, many, found.measured, found.bound, word)
        lines.append((line(cells), good))
    return lines


def main() -> int:
    """Run, print, and say how many promises are broken."""
    parser = argparse.ArgumentParser(description="Does what is promised hold?")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the repeats")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--workers", type=int, default=None, help="processes; default: cores")
    options = parser.parse_args()
    wrong, start = 0, time.perf_counter()
    print(line(HEAD))
    experiments = [e for name in options.only for e in SECTIONS[name].experiments()]
    for experiment, numbers in run(experiments, quick=options.quick, workers=options.workers):
        for text, good in judged_lines(experiment, numbers):
            print(text, flush=True)
            wrong += not good
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{wrong} not as promised." if wrong else "\nAll as promised.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""From the numbers of an experiment to one verdict: how often, how much, and what is allowed.

Rates and means in, `Found` out. A bound on a rate gives chance three binomial standard errors. In
brackets behind a measured rate stands its exact one-sided bound at 99%. It knows nothing of what
was counted.
"""

from __future__ import annotations

import numpy as np
from experiments import Floats, Found

from calibration.thresholds import lower_bound, upper_bound

SURELY = 0.99
"""Level of the exact bounds beside a measured rate."""

MANY = 10_000
"""Draws from which a rate needs no room for chance."""


def error(rate: float, repeats: int) -> float:
    """The binomial standard error of a rate."""
    return float(np.sqrt(rate * (1 - rate) / repeats))


def percent(share: float) -> str:
    """A share as a percentage with one digit."""
    return f"{100 * share:.1f}%"


def rare(found: Floats, *, level: float = 0.05, sure: float = 0.008) -> Found:
    """Whether what must not happen happens with a rate of `level` at most.

    found: (repeats, 1) of 1, 0, and NaN, where nothing was claimed, which counts as 0. From `MANY`
    draws on the rate itself must not exceed `level`, nor its exact upper bound `level + sure`.
    """
    column = found[:, 0]
    n, count = len(column), int(np.nansum(column))
    rate, most = count / n, upper_bound(count, n, level=SURELY)
    measured = f"{percent(rate)} (<= {percent(most)})"
    if np.isnan(column).any():
        measured += f", given in {percent(1 - np.isnan(column).mean())}"
    if n >= MANY:
        bound = f"<= {percent(level)} (<= {percent(level + sure)})"
        return Found(measured, bound, rate <= level and most <= level + sure)
    allowed = level + 3 * error(level, n)
    return Found(measured, f"<= {percent(allowed)}", rate <= allowed)


def often(found: Floats, *, level: float = 0.05) -> Found:
    """Whether a rate is surely above `level`; for a control, (repeats, 1) as in `rare`.

    `holds` is that it is not: a promise of at most `level` would be kept.
    """
    n, count = len(found), int(np.nansum(found[:, 0]))
    least = lower_bound(count, n, level=SURELY)
    measured = f"{percent(count / n)} (>= {percent(least)})"
    return Found(measured, f"promised <= {percent(level)}", least <= level)


def seen(found: Floats, *, least: float = 0.9) -> Found:
    """Whether an alarm is silent more often than it may be where something is wrong: a control.

    found: (repeats, 1), 1 where it fires. `holds` is that it fires less often than `least`.
    """
    rate = float(found[:, 0].mean())
    return Found(f"fires in {percent(rate)}", f"must fire, >= {percent(least)}", rate < least)


def covers(found: Floats, *, level: float = 0.95, least: float = 0.92) -> Found:
    """Whether (repeats, 1) intervals hold the truth (1) or not (0) with a rate of `least` at least.

    `least` is what an interval that is right in large samples only, of this level, may fall to; a
    quick run has three standard errors of room besides.
    """
    rate, n = float(found[:, 0].mean()), len(found)
    least = min(least, level - 3 * error(level, n))
    return Found(percent(rate), f"{percent(level)}, >= {percent(least)}", rate >= least)


def misses(found: Floats, *, level: float = 0.95, least: float = 0.92) -> Found:
    """Whether intervals (as in `covers`) surely hold the truth less often than `least`.

    For a control: `holds` is that they do not.
    """
    count = int(found[:, 0].sum())
    most = upper_bound(count, len(found), level=SURELY)
    measured = f"{percent(count / len(found))} (<= {percent(most)})"
    return Found(measured, f"promised {percent(level)}, >= {percent(least)}", most >= least)


def about(found: Floats, *, rate: float) -> Found:
    """Whether something happens with this rate, within three standard errors either way."""
    measured, room = float(found[:, 0].mean()), 3 * error(rate, len(found))
    bound = f"{percent(max(0.0, rate - room))} to {percent(rate + room)}"
    return Found(percent(measured), bound, abs(measured - rate) <= room)


def never_below(found: Floats, *, least: float) -> Found:
    """Whether no number of (repeats, 1) is below `least`, but for last digits."""
    lowest = float(found[:, 0].min())
    return Found(f"lowest {100 * lowest:.4f}%", f">= {percent(least)}", lowest >= least - 1e-6)


def share_of(found: Floats, *, best: float, least: float) -> Found:
    """Whether the mean of (repeats, 1) shares is at least the part `least` of the best there is."""
    part = float(found[:, 0].mean()) / best
    return Found(f"{percent(part)} of {percent(best)}", f">= {percent(least)}", part >= least)


def centred(found: Floats, *, most: float) -> Found:
    """Whether the mean of (repeats, 1) gaps is within `most` of 0; NaN is no gap."""
    gaps = found[~np.isnan(found[:, 0]), 0]
    mean, typical = float(gaps.mean()), float(np.sqrt((gaps**2).mean()))
    return Found(f"{mean:+.3f}, one draw {typical:.3f}", f"within {most:.3f}", abs(mean) <= most)


def careful(found: Floats, *, above: float, below: float) -> Found:
    """Whether the mean of (repeats, 1) gaps is at most `above`, and no lower than -`below`.

    Of what may say too little, and must not say too much; NaN is no gap.
    """
    gaps = found[~np.isnan(found[:, 0]), 0]
    mean, typical = float(gaps.mean()), float(np.sqrt((gaps**2).mean()))
    bound = f"{-below:+.3f} to {above:+.3f}"
    return Found(f"{mean:+.3f}, one draw {typical:.3f}", bound, -below <= mean <= above)


def small(found: Floats, *, most: float) -> Found:
    """Whether the mean of the first column is at most this; the second counts draws within chance.

    Its share is told and not judged: a map fitted on few rows is off by what they cannot tell.
    """
    mean, within = float(found[:, 0].mean()), float(found[:, 1].mean())
    measured = f"{mean:.3f}; within chance in {100 * within:.0f}%"
    return Found(measured, f"<= {most:.3f}", mean <= most)

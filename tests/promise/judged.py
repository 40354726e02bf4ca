"""Few labels beside a judge's verdicts: certificates and intervals hold whatever the judge does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from experiments import Experiment, Floats, Row
from judges import centred, covers, rare
from numpy.random import Generator
from worlds import TARGET

from calibration.label_selection import choose_judged, judged_strata
from calibration.prediction_powered import Strata, powered_mean
from calibration.thresholds import certify_judged

QUESTIONS = 1000
JUST_BELOW = 0.699
SOME = 0.2


def independent(error: float, right: Floats, hard: Floats, rng: Generator) -> Floats:
    """A judge that is wrong with this rate, whatever the question."""
    return np.where(rng.random(len(right)) < error, 1 - right, right)


def difficult(error: float, right: Floats, hard: Floats, rng: Generator) -> Floats:
    """A judge that is wrong of the hardest questions, a share of `error` in all."""
    return np.where(hard > 1 - error, 1 - right, right)


def yes_sayer(error: float, right: Floats, hard: Floats, rng: Generator) -> Floats:
    """A judge that is never wrong of right answers; of all, a share of `error` are false yeses."""
    return np.where(rng.random(len(right)) < error / (1 - JUST_BELOW), 1.0, right)


def no_sayer(error: float, right: Floats, hard: Floats, rng: Generator) -> Floats:
    """A judge that is never wrong of wrong answers; of all, a share of `error` are false noes."""
    return np.where(rng.random(len(right)) < error / JUST_BELOW, 0.0, right)


def silent(error: float, right: Floats, hard: Floats, rng: Generator) -> Floats:
    """A judge that gives no answer to this share, of hard questions mostly."""
    return np.where(rng.random(len(right)) < 2 * error * hard, np.nan, right)


Judge = Callable[[float, Floats, Floats, Generator], Floats]
JUDGES: dict[str, tuple[Judge, tuple[float, ...]]] = {
    "wrong of {:.0%}, whatever the question": (independent, (0.05, 0.1, 0.2, 0.3)),
    "wrong of the hardest {:.0%}": (difficult, (0.1, 0.2, 0.3)),
    "false yeses, {:.0%} of all": (yes_sayer, (0.1, 0.2)),
    "false noes, {:.0%} of all": (no_sayer, (0.1, 0.2)),
    "no answer to {:.0%}": (silent, (0.2,)),
}


def draw(
    judge: Judge, error: float, rate: float, labels: int, rng: Generator, confidence: Floats
) -> Strata:
    """The counts of labels that are drawn beside the verdicts of a judge of this error."""
    hard = rng.random(QUESTIONS)
    right = (rng.random(QUESTIONS) < rate + 0.4 * (0.5 - hard)).astype(float)
    strata = judged_strata(confidence, judge(error, right, hard, rng), TARGET)
    rows = choose_judged(strata, labels, random_state=int(rng.integers(2**31))).rows
    return Strata.of(right[rows], strata[rows], np.bincount(strata, minlength=6))


def certificate(judge: Judge, error: float, labels: int, rng: Generator) -> tuple[float]:
    """Whether accepted questions, of which 69.9% are right, are certified."""
    strata = draw(judge, error, JUST_BELOW, labels, rng, np.full(QUESTIONS, TARGET))
    found = certify_judged(strata, judge="it", threshold=TARGET, target=TARGET)
    return (float("nan") if found.threshold is None else 1.0,)


def estimate(judge: Judge, error: float, labels: int, rng: Generator) -> tuple[float, float]:
    """Whether the interval of the share of right answers of all questions holds it, and the gap."""
    strata = draw(judge, error, 0.6, labels, rng, rng.random(QUESTIONS))
    found = powered_mean(strata)
    return float(found.interval[0] <= 0.6 <= found.interval[1]), found.mean - 0.6


def experiments() -> list[Experiment]:
    """Judges of known error: of any kind for certificates, some for estimates."""
    false = (Row("a certificate with a judge is false", (0,), rare),)
    about = (
        Row("accuracy of all, with a judge: its interval", (0,), covers),
        Row("its bias", (1,), partial(centred, most=0.02)),
    )
    worlds = [
        (f"judge: {name.format(error)}; {labels} labels", judge, error, labels)
        for name, (judge, errors) in JUDGES.items()
        for error in errors
        for labels in ((40, 100) if error == SOME else (40,))
    ]
    of_accepted = [
        Experiment(world, 1000, partial(certificate, judge, error, labels), false)
        for world, judge, error, labels in worlds
    ]
    return of_accepted + [
        Experiment(world, 400, partial(estimate, judge, error, labels), about)
        for world, judge, error, labels in worlds[::3]
    ]

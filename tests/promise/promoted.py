"""A gate before champion: how often a worse model passes, and what twenty promotions may lose.

Queries are of documents, which share how hard they are. Each model is right or wrong of each query,
and knows as well as the documents let it.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from experiments import Experiment, Floats, Found, Row
from judges import percent, rare
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit

from calibration.metrics.intervals import paired_difference, surely_better

MARGIN, BRIER_MARGIN = 0.05, 0.02
DOCUMENTS, SIZE = 60, 10
PROMOTIONS = 20
STEP = 0.02
"""How much less often each new model is right than the champion that it would replace."""

BEST = 0.75
"""How often the first champion is right."""

_POINTS = np.linspace(-6, 6, 401)
_WEIGHTS = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()


@lru_cache
def intercept(rate: float) -> float:
    """The log odds that give the mean query this rate, over easiness of deviation 1.4."""
    low, high = -10.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        if float((_WEIGHTS * expit(middle + 1.4 * _POINTS)).sum()) < rate:
            low = middle
        else:
            high = middle
    return low


def queries(rng: Generator) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return groups, how easy each query is (deviation 1.4, half of the document), and luck."""
    size = rng.integers(1, 2 * SIZE, DOCUMENTS)
    groups = np.repeat(np.arange(DOCUMENTS), size)
    easy = rng.normal(size=DOCUMENTS)[groups] + rng.normal(size=len(groups)) * np.sqrt(0.96)
    return groups, easy, rng.random(len(groups))


def losses(rate: float, easy: Floats, luck: Floats) -> tuple[Floats, Floats]:
    """Return wrong answers and Brier scores of a model that is right at this rate.

    Two models are right of the same queries as far as their rates allow: the luck is the query's.
    """
    truth = expit(intercept(rate) + easy)
    wrong = (luck >= truth).astype(float)
    return wrong, (truth - (1 - wrong)) ** 2


def passes(candidate: float, best: float, rng: Generator) -> tuple[bool, bool]:
    """Return whether a model passes the gate, and whether it is the best so far then."""
    groups, easy, luck = queries(rng)
    pairs = zip(losses(candidate, easy, luck), losses(best, easy, luck), strict=True)
    found = [paired_difference(ours, theirs, groups) for ours, theirs in pairs]
    through = found[0].high < MARGIN and found[1].high < BRIER_MARGIN
    return through, through and surely_better(found)


def worse(rng: Generator) -> tuple[float]:
    """Try a model that loses just more than the margin."""
    return (float(passes(BEST - MARGIN - 1e-3, BEST, rng)[0]),)


def as_good(rng: Generator) -> tuple[float]:
    """Try a model that loses nothing, of other luck in one query of ten."""
    groups, easy, luck = queries(rng)
    other = np.where(rng.random(len(luck)) < 0.1, rng.random(len(luck)), luck)
    pairs = zip(losses(BEST, easy, other), losses(BEST, easy, luck), strict=True)
    right, brier = (paired_difference(ours, theirs, groups).high for ours, theirs in pairs)
    return (float(right < MARGIN and brier < BRIER_MARGIN),)


def creep(rng: Generator, *, against_best: bool = True) -> tuple[float]:
    """Try twenty models, each a little worse than the champion; return what the last one loses."""
    champion = best = BEST
    for _ in range(PROMOTIONS):
        candidate = round(champion - STEP, 6)
        through, better = passes(candidate, best if against_best else champion, rng)
        if through:
            champion = candidate
            best = candidate if better else best
    return (BEST - champion,)


def within(found: Floats, *, most: float) -> Found:
    """Whether the mean of (repeats, 1) losses is at most this; 95 in 100 of them are told."""
    mean, high = float(found.mean()), float(np.quantile(found, 0.95))
    return Found(
        f"{percent(mean)}, 95% of chains {percent(high)}", f"<= {percent(most)}", mean <= most
    )


def usable(found: Floats) -> Found:
    """Whether a model that is as good passes in half of the tries at least."""
    rate = float(found.mean())
    return Found(f"passes in {percent(rate)}", ">= 50.0%", rate >= 0.5)


def experiments() -> list[Experiment]:
    """One gate, a worse and an equal model; chains against the best and against the last one."""
    world = f"{DOCUMENTS} documents of {SIZE} queries"
    return [
        Experiment(world, 1000, worse, (Row("a model beyond the margin is promoted", (0,), rare),)),
        Experiment(world, 300, as_good, (Row("a model as good is promoted", (0,), usable),)),
        Experiment(
            f"{PROMOTIONS} models, each {STEP:g} worse than the champion",
            100,
            creep,
            (Row("quality lost to the best", (0,), partial(within, most=MARGIN + STEP)),),
        ),
        Experiment(
            "the same, compared with the last champion alone",
            100,
            partial(creep, against_best=False),
            (Row("quality lost", (0,), partial(within, most=MARGIN + STEP), control=True),),
        ),
    ]

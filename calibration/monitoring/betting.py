"""Bets on labels at the prices that confidences set: wealth is evidence, whenever it is looked at.

Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"; for
forecasts Henzi and Ziegel 2022, "Valid sequential inference on probability forecast performance".
At fair prices, the chance that wealth ever reaches 1 / level times the first stake is at most
`level` (Ville 1939). The confidence p is the price. A bet that the odds of a hit are e^b times
those of p multiplies its stake by the likelihood ratio e^(b y) / (1 - p + p e^b); its expectation
is 1 if y is 1 with probability p, at p = 0 and p = 1 too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, finite_number, set_finite_numbers


@dataclass(frozen=True, slots=True)
class Wealth:
    """The value of one unit, spread evenly over several bets, after n labels.

    Each bet stakes 1 / ((k + 1) (k + 2)) of its share after k labels, k = 0, 1, ...: a half at
    once; 1 / (n + 2) is still in hand. So a long good period does not lose the later stakes, and a
    change is detected soon after it.

    stakes: one per bet, the logarithm of its stake by now, the part for the next label included.
    peak: logarithm of the highest wealth so far, at least 0.

    Raises:
        ValueError: no stake, a number that is not finite, n or peak below 0.
    """

    stakes: tuple[float, ...]
    n: int = 0
    peak: float = 0.0

    def __post_init__(self) -> None:
        set_finite_numbers(self, "stakes")
        object.__setattr__(self, "peak", finite_number("peak", self.peak))
        if type(self.n) is not int or self.n < 0 or self.peak < 0:
            raise ValueError(
                f"n must be a whole number and peak a number, both at least 0, got {self.n!r:.80} "
                f"and {self.peak}"
            )

    @classmethod
    def start(cls, bets: int) -> Wealth:
        """Return the wealth before the first label, spread evenly over this number of bets."""
        return cls((math.log(0.5),) * bets)

    @property
    def e_value(self) -> float:
        """The wealth now, at most e^700; its expectation is 1 at fair prices."""
        now = np.logaddexp(log_mean(np.array(self.stakes)), -math.log(self.n + 2))
        return math.exp(min(float(now), 700.0))

    @property
    def highest(self) -> float:
        """The highest wealth so far, at most e^700."""
        return math.exp(min(self.peak, 700.0))

    @property
    def p_value(self) -> float:
        """1 / the highest wealth so far: a valid p-value however often it is looked at."""
        return math.exp(-self.peak)

    def after(self, factors: Floats) -> Wealth:
        """Return the wealth after more labels; factors (bets, T) are logarithms, T >= 1."""
        n = self.n + np.arange(1.0, factors.shape[1] + 1)
        run = np.cumsum(factors, axis=1)
        laid = -np.log((n + 1) * (n + 2)) - run
        begun = np.column_stack([np.array(self.stakes), laid])
        stakes = run + np.logaddexp.accumulate(begun, axis=1)[:, 1:]
        wealth = np.logaddexp(log_mean(stakes), -np.log(n + 2))
        return Wealth(
            tuple(stakes[:, -1].tolist()),
            self.n + factors.shape[1],
            max(self.peak, float(wealth.max())),
        )


def log_mean(logs: Floats) -> Floats:
    """Return log(mean(exp(logs))) over the first axis."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)), dtype=np.float64)


def log_factors(y: ArrayLike, p: ArrayLike, b: ArrayLike) -> Floats:
    """Return b y - log(1 - p + p e^b): the log factor of bet b on label y at price p.

    Arrays are broadcast; y is 0 or 1, p in [0, 1], b any finite number.
    """
    tilt, price = np.asarray(b, dtype=np.float64), np.asarray(p, dtype=np.float64)
    return np.asarray(tilt * np.asarray(y) - np.log1p(price * np.expm1(tilt)), dtype=np.float64)

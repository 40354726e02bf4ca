"""Are confidences still right? Tests on labels as they arrive, valid however often one looks.

Labels and confidences in, evidence out; numpy only. Two assumptions cannot be checked: whether a
label arrives must not depend on its value, and of rephrasings of one question only one may count.

The method is betting on labels at the prices that confidences set (Waudby-Smith and Ramdas 2024,
"Estimating means of bounded random variables by betting"; Henzi and Ziegel 2022, "Valid sequential
inference on probability forecast performance"). At fair prices, the chance that wealth ever reaches
1 / level times the first stake is at most `level` (Ville 1939). The confidence p is the price. A
bet that the odds of a hit are e^b times those of p multiplies its stake by the likelihood ratio
e^(b y) / (1 - p + p e^b), whose expectation is 1 if y is 1 with probability p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from calibration import arrays
from calibration.arrays import Floats


@dataclass(frozen=True, slots=True)
class Wealth:
    """The value of one unit, spread over several bets, after n labels.

    Each bet stakes 1 / ((k + 1) (k + 2)) of its share after k labels, k = 0, 1, ...: so 1 / (n + 2)
    is still in hand, and a change after a long good period is detected soon.

    stakes: of each bet, the logarithm by now, the part for the next label included. peak: logarithm
    of the highest wealth so far, at least 0.
    """

    stakes: tuple[float, ...]
    n: int = 0
    peak: float = 0.0

    def __post_init__(self) -> None:
        arrays.set_finite_numbers(self, "stakes")
        object.__setattr__(self, "peak", arrays.finite_number("peak", self.peak))
        if type(self.n) is not int or self.n < 0 or self.peak < 0:
            got = f"{self.n!r:.80} and {self.peak}"
            raise ValueError(f"n must be a whole number, n and peak at least 0, got {got}")

    @classmethod
    def start(cls, parts: Floats) -> Wealth:
        """Return the wealth before the first label; parts (bets,): of each bet, 1 in the mean."""
        return cls(tuple((math.log(0.5) + np.log(parts)).tolist()))

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

    def after(self, factors: Floats, parts: Floats) -> Wealth:
        """Return the wealth after more labels; factors (bets, T) are logarithms, T >= 1.

        parts (bets,): as of `start`.
        """
        n = self.n + np.arange(1.0, factors.shape[1] + 1)
        run = np.cumsum(factors, axis=1)
        laid = np.log(parts)[:, None] - np.log((n + 1) * (n + 2)) - run
        begun = np.column_stack([np.array(self.stakes), laid])
        stakes = run + np.logaddexp.accumulate(begun, axis=1)[:, 1:]
        peak = float(np.logaddexp(log_mean(stakes), -np.log(n + 2)).max())
        return Wealth(tuple(stakes[:, -1].tolist()), int(n[-1]), max(self.peak, peak))


def log_mean(logs: Floats) -> Floats:
    """Return log(mean(exp(logs))) over the first axis."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)), dtype=np.float64)


def log_factors(y: ArrayLike, p: ArrayLike, b: ArrayLike) -> Floats:
    """Return b y - log(1 - p + p e^b): the log factor of bet b on label y at price p, broadcast."""
    tilt, price = np.asarray(b, dtype=np.float64), np.asarray(p, dtype=np.float64)
    return np.asarray(tilt * np.asarray(y) - np.log1p(price * np.expm1(tilt)), dtype=np.float64)


SIZES = (0.25, 0.5, 1.0, 2.0)  # how far the bets of `CalibrationMonitor` move the log odds
# How far off a confidence may be without an alarm: no fitted map is exact. In simulations with maps
# fitted on 250 labels, half of the monitors without it alarmed within 2,000 new labels, and one in
# twenty with it. What is .10 too high alarms after about 350 labels, .15 after about 110.
TOLERANCE = 0.04

NO_BOUND = 0.0005  # a share that is shown as 0.0%
# what `CalibrationMonitor` bets on, and how: b = size * (second + third * (2 p - 1))
DIRECTIONS = (
    ("promise too much", -1.0, 0.0),
    ("promise too little", 1.0, 0.0),
    ("are too sure", 0.0, -1.0),
    ("are too timid", 0.0, 1.0),
)
# what it lays on each direction and size: most on small shifts, which are the likeliest and need
# the most labels; with equal parts a shift of .10 took twice as many
PARTS = np.outer([1.8, 1.8, 0.2, 0.2], np.array([3, 3, 1, 0.3]) / 1.825).ravel()
# the b of `AccuracyMonitor`, which bets that the accuracy is below its target
FALLS = (-0.0625, -0.125, -0.25, -0.5, -1.0, -2.0)


class _Bets:
    """The wealth and evidence that all monitors report."""

    __slots__ = ()
    kind: ClassVar[str]
    level: float
    wealth: Wealth

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values, with its `kind`."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """Return what `to_dict` wrote, the same to the last bit; ValueError: not a valid state."""
        names = [f.name for f in fields(cls) if f.name != "wealth"]  # type: ignore[arg-type]
        arrays.check_keys(f"the state of a monitor ({cls.kind})", d, ("kind", *names, "wealth"))
        arrays.check_keys("its wealth", d["wealth"], ("stakes", "n", "peak"))
        if d["kind"] != cls.kind:
            raise ValueError(f"expected kind {cls.kind!r}, got {d['kind']!r}")
        for name in names:
            if isinstance(d[name], bool) or not isinstance(d[name], (int, float)):
                raise ValueError(f"{name} must be a number, got {d[name]!r}")
        state: dict[str, Any] = {**d, "wealth": Wealth(**d["wealth"])}
        return cls(**{name: state[name] for name in (*names, "wealth")})

    @property
    def n(self) -> int:
        """Labels seen."""
        return self.wealth.n

    @property
    def e_value(self) -> float:
        """The evidence now: 1 at the start; its expectation is at most 1 if nothing is wrong."""
        return self.wealth.e_value

    @property
    def alarmed(self) -> bool:
        """Whether the evidence has ever reached 1 / level; an alarm is permanent."""
        return self.wealth.p_value <= self.level


@dataclass(frozen=True, slots=True)
class CalibrationMonitor(_Bets):
    """Are the confidences calibrated? A test of |E[y | all before, p] - p| <= tolerance.

    It bets in four directions at once: the confidences promise too much, too little, are too sure
    (too near 0 and 1) or too timid. A bet on more hits pays the price p + tolerance, a bet on fewer
    p - tolerance. The chance of ever giving a false alarm is at most `level`, for any confidences.
    If 70% are promised and 43% are right, it alarms after about 40 labels (median).
    """

    kind: ClassVar[str] = "calibration-monitor"
    level: float  # of the test, within (0, 1)
    hits: int  # sum of the labels
    promised: float  # sum of the confidences
    wealth: Wealth  # one stake per direction and size
    tolerance: float = TOLERANCE  # in [0, 1); 0 tests for exact calibration

    def __post_init__(self) -> None:
        level = _checked(self.level, self.hits, self.wealth, len(DIRECTIONS) * len(SIZES))
        object.__setattr__(self, "level", level)
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must lie in [0, 1), got {self.tolerance}")
        if not 0 <= self.promised <= self.n * (1 + 1e-9):
            raise ValueError(f"promised must lie between 0 and {self.n}, got {self.promised}")

    @classmethod
    def start(cls, level: float = 0.05, *, tolerance: float = TOLERANCE) -> CalibrationMonitor:
        """Return the monitor before the first label."""
        return cls(level, 0, 0.0, Wealth.start(PARTS), tolerance)

    def update(self, y: ArrayLike, p: ArrayLike) -> CalibrationMonitor:
        """Return the monitor after labels y (n,), in order, on confidences p (n,); single ones too.

        Updates in parts or at once differ only in the last digits.
        """
        if np.size(y) == np.size(p) == 0:
            return self
        labels, prices = arrays.check_y_p(np.atleast_1d(y), np.atleast_1d(p))
        shifts, slopes = np.array([moves for _, *moves in DIRECTIONS]).T[..., None, None]
        b = np.array(SIZES)[:, None] * (shifts + slopes * (2 * prices - 1))
        least, most = prices - self.tolerance, prices + self.tolerance
        paid = np.clip(np.where(b > 0, most, np.where(b < 0, least, prices)), 0.0, 1.0)
        factors = log_factors(labels, paid, b).reshape(-1, len(labels))
        hits, promised = self.hits + int(labels.sum()), self.promised + float(prices.sum())
        wealth = self.wealth.after(factors, PARTS)
        return CalibrationMonitor(self.level, hits, promised, wealth, self.tolerance)

    @property
    def direction(self) -> str:
        """The direction in `DIRECTIONS` whose bets have won most, in words."""
        stakes = np.array(self.wealth.stakes).reshape(len(DIRECTIONS), len(SIZES))
        return DIRECTIONS[int(np.argmax(log_mean(stakes.T)))][0]

    @property
    def sentence(self) -> str:
        """What is known by now, in words."""
        shares = ((self.promised, "promised"), (self.hits, "were right"))
        labels = "1 label" if self.n == 1 else f"{self.n} labels"
        means = " and ".join(f"{100 * s / max(1, self.n):.1f}% {word}" for s, word in shares)
        if not self.alarmed:
            return f"No alarm after {labels}: {means} ({_evidence(self.wealth)})."
        return (
            f"Alarm within {labels}: the confidences {self.direction}; {means} "
            f"({_evidence(self.wealth)}, level {self.level:g}, tolerance {self.tolerance:g})."
        )


@dataclass(frozen=True, slots=True)
class AccuracyMonitor(_Bets):
    """Are the accepted answers right as often as promised? Labels of accepted queries only.

    A test of E[y | all before] >= target at every label. The chance of ever giving a false alarm is
    at most `level`. If the target is 70% and 50% are right, it alarms after about 40 labels
    (median).

    level, target: within (0, 1). wealth: one stake per number of `FALLS`.
    """

    kind: ClassVar[str] = "accuracy-monitor"
    level: float
    target: float
    hits: int
    wealth: Wealth

    def __post_init__(self) -> None:
        level = _checked(self.level, self.hits, self.wealth, len(FALLS))
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "target", arrays.check_share("target", self.target))

    @classmethod
    def start(cls, target: float = 0.7, level: float = 0.05) -> AccuracyMonitor:
        """Return the monitor before the first label."""
        return cls(level, target, 0, Wealth.start(np.ones(len(FALLS))))

    def update(self, y: ArrayLike) -> AccuracyMonitor:
        """Return the monitor after labels y (n,) of 0 and 1, in order, or after a single one."""
        if np.size(y) == 0:
            return self
        labels, prices = arrays.check_y_p(np.atleast_1d(y), np.full(np.size(y), self.target))
        factors = log_factors(labels, prices, np.array(FALLS)[:, None])
        hits = self.hits + int(labels.sum())
        wealth = self.wealth.after(factors, np.ones(len(FALLS)))
        return AccuracyMonitor(self.level, self.target, hits, wealth)

    @property
    def upper(self) -> float:
        """Upper bound of the mean accuracy since the start; 1 if nothing is known.

        A confidence sequence: with probability at least 1 - level it is above the running mean of
        E[y | all before] at all times at once, even if the accuracy changes on the way.
        """
        return _upper(self.hits, self.n, self.level)

    @property
    def lower(self) -> float:
        """Lower bound of the mean accuracy since the start, as `upper`; each has its own level."""
        return 1 - _upper(self.n - self.hits, self.n, self.level)

    @property
    def sentence(self) -> str:
        """What is known by now, in words."""
        if not self.n:
            return "No alarm: no accepted answer has been judged yet."
        seen = f"{self.hits} of {self.n} accepted answers were right"
        if not self.alarmed and self.lower < NO_BOUND and self.upper > 1 - NO_BOUND:
            return f"No alarm: {seen}, too few to say more."
        bounds = f"between {100 * self.lower:.1f}% and {100 * self.upper:.1f}% on average"
        if not self.alarmed:
            return f"No alarm: {seen}, {bounds} ({_evidence(self.wealth)})."
        return (
            f"Alarm: {seen}, {bounds}; the accuracy is or was below {100 * self.target:g}% "
            f"({_evidence(self.wealth)}, level {self.level:g})."
        )


def _upper(hits: int, n: int, level: float) -> float:
    """Return the lowest mean for which the bets on less have won 1 / level, or 1; by bisection.

    The logarithm is concave, so a factor priced at the running mean is at most the product of those
    priced label by label, which is fair: Ville's inequality then holds for the running mean (as in
    Howard et al. 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences").
    """
    b = np.array(FALLS)

    def not_won(mean: float) -> bool:
        logs = hits * log_factors(1, mean, b) + (n - hits) * log_factors(0, mean, b)
        return float(log_mean(logs)) < -math.log(level)

    return 1.0 if not_won(1.0) else arrays.bisect(not_won, 0.0, 1.0, 50)


def _evidence(wealth: Wealth) -> str:
    return f"e-value {wealth.e_value:.3g}, highest {wealth.highest:.3g}"


def _checked(level: float, hits: int, wealth: Wealth, bets: int) -> float:
    if not isinstance(hits, int) or not 0 <= hits <= wealth.n:
        raise ValueError(f"hits must lie between 0 and n, got {hits!r} of {wealth.n}")
    if len(wealth.stakes) != bets:
        raise ValueError(f"expected {bets} stakes, got {len(wealth.stakes)}")
    return arrays.check_share("level", level)

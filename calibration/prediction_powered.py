"""Means over many rows that a judge has seen, from the few that people labelled.

Counts by stratum in, bounds out. A stratum is what the judge says of a row, such as yes or no. It
knows nothing of judges; numpy only, except for `Powered.worth`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, check_y_p
from calibration.metrics.intervals import Interval

MOST_STRATA, MOST_ROWS = 100, 10**12
DRAWS = 20_000
"""Random draws per bound; at a tail of 5% its standard error is 0.15%."""

ADVISED, LEAST_TIMES, MOST_TIMES = 0.9, 1.25, 40
"""How surely more labels should be enough, and how many times as many they may be."""


@dataclass(frozen=True, slots=True)
class Strata:
    """Of each stratum (K,): how many labelled rows are right, how many are labelled, and all rows.

    Raises:
        ValueError: counts that do not fit together, or no labelled row.
    """

    right: tuple[int, ...]
    labelled: tuple[int, ...]
    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse counts that no sample has; lists, as files hold them, become tuples."""
        for name in ("right", "labelled", "rows"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        whole = all(type(x) is int for x in (*self.right, *self.labelled, *self.rows))
        if not whole or not len(self.right) == len(self.labelled) == len(self.rows):
            raise ValueError(f"expected three whole counts a stratum, got {self}")
        each = zip(self.right, self.labelled, self.rows, strict=True)
        if not all(0 <= h <= n <= m for h, n, m in each) or not any(self.labelled):
            raise ValueError(f"expected 0 <= right <= labelled <= rows, some labelled; got {self}")
        if len(self.rows) > MOST_STRATA or sum(self.rows) > MOST_ROWS:
            raise ValueError(f"expected at most {MOST_STRATA} strata of {MOST_ROWS:,} rows in all")

    @classmethod
    def of(cls, y: ArrayLike, stratum: ArrayLike, rows: ArrayLike) -> Strata:
        """The counts of labels y (n,) of strata (n,), 0 to K - 1, with `rows` (K,) in all."""
        labels, _ = check_y_p(y, np.zeros(np.size(y)))
        number, sizes = np.asarray(stratum), np.asarray(rows)
        if number.shape != labels.shape or (len(number) and number.min() < 0):
            raise ValueError("expected a stratum, 0 or more, for every label")
        right = np.bincount(number, labels, len(sizes)).astype(np.int64)
        labelled = np.bincount(number, minlength=len(sizes))
        return cls(*(tuple(x.tolist()) for x in (right, labelled, sizes)))

    @property
    def mean(self) -> float:
        """The share of all rows that is right: the strata's shares, weighted by their rows.

        A stratum without labels has the share of all labels.
        """
        labelled = np.array(self.labelled)
        of_all = sum(self.right) / sum(self.labelled)
        shares = np.where(labelled > 0, np.array(self.right) / np.maximum(labelled, 1), of_all)
        return float(shares @ np.array(self.rows) / sum(self.rows))

    def tail(self, target: float) -> float:
        """The p-value of "no more than `target` of new rows are right": see `lower_draws`."""
        return float((1 + (lower_draws(self) <= target).sum()) / (DRAWS + 1))

    @property
    def mirrored(self) -> Strata:
        """The same rows, right and wrong exchanged."""
        wrong = tuple(n - h for h, n in zip(self.right, self.labelled, strict=True))
        return Strata(wrong, self.labelled, self.rows)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge says of labelled rows: the stratum of each (n,), and the rows of each (K,)."""

    judge: str
    stratum: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Powered:
    """A share of all rows with its two-sided 95% interval, and what the judge was worth."""

    mean: float
    interval: Interval
    bound: float  # one-sided, 95%
    labels: int
    rows: int  # that the judge has seen

    @property
    def worth(self) -> int:
        """How many rows labelled at random would give the same bound without a judge."""
        from scipy.special import betainc

        low, high = 1.0, float(max(self.rows, self.labels))
        for _ in range(40):
            n = (low + high) / 2
            hits = max(self.mean * n, 1e-9)
            enough = betainc(hits, n - hits + 1, self.bound) <= 0.05  # Clopper and Pearson's
            low, high = (low, n) if enough else (n, high)
        return round(low)

    @property
    def sentence(self) -> str:
        """The estimate in words, with the worth of the judge."""
        low, high = self.interval
        gained = self.worth - self.labels
        worth = (
            f"worth {gained} label{'s' * (gained > 1)}"
            if gained > 0
            else "worth none: without it as many labels say as much"
        )
        return (
            f"{self.mean:.1%} right [95%: {low:.1%} to {high:.1%}], by {self.labels} labels and "
            f"what the judge says of {self.rows:,} questions. The judge was {worth}."
        )


def powered_mean(strata: Strata) -> Powered:
    """Estimate the share of right rows, from labels within strata of what a judge says.

    This is prediction-powered inference (Angelopoulos et al. 2023, Science 382:669) for a judge
    with a few answers, with the power tuning that is best for it (PPI++, Angelopoulos, Duchi and
    Zrnic 2311.01453): then it is post-stratification. It holds whatever the judge does, as the
    labels of a stratum are a random sample of it; a bad judge only makes it wide. Its bounds do not
    rest on a normal approximation (`lower_draws`). Strata may be labelled more or less densely.
    """
    low, wrong = lower_draws(strata), lower_draws(strata.mirrored)
    return Powered(
        strata.mean,
        (_lowest(low, 0.025), 1 - _lowest(wrong, 0.025)),
        _lowest(low, 0.05),
        sum(strata.labelled),
        sum(strata.rows),
    )


def lower_draws(strata: Strata) -> Floats:
    """Return rising (`DRAWS`,) values, whose level quantile is the lower bound at 1 - level.

    Each stratum's share is drawn from Beta(right, wrong + 1), whose quantiles are the lower bounds
    of Clopper and Pearson (1934); without a right label it is 0. The strata's parts of new rows are
    drawn as by a Bayesian bootstrap of the rows, with one more row in the stratum of the lowest
    share (Gaffke 2005). Combining them so is melding (Fay, Proschan and Brittain 2015, "Combining
    one-sample confidence procedures for inference in the two-sample case", Biometrics). One stratum
    gives the exact binomial test. That a promise is false with at most the level is proved there
    for some cases, and seen for all others that were enumerated and simulated (`make promise`).
    """
    counts = np.array([strata.right, strata.labelled, strata.rows])
    right, labelled, rows = counts[:, counts[2] > 0]
    rng = np.random.default_rng(0)
    shares = rng.beta(np.maximum(right, 1), labelled - right + 1, (DRAWS, len(rows)))
    shares[:, right == 0] = 0.0
    if len(rows) == 1:
        return np.sort(shares[:, 0])
    parts = rng.gamma(rows, size=shares.shape)
    more = rng.standard_exponential(DRAWS)
    total = (parts * shares).sum(axis=1) + more * shares.min(axis=1)
    return np.asarray(np.sort(total / (parts.sum(axis=1) + more)))


def labels_for(strata: Strata, target: float, level: float) -> int | None:
    """Return about how many labels, shared alike, refute the target in `ADVISED` of samples.

    The strata's shares are taken to be as measured, with half a right and half a wrong label more,
    and the estimate to be normal: this is advice. None: more than `MOST_TIMES` as many.
    """
    from scipy.special import ndtri

    right, labelled, rows = (np.array(x) for x in (strata.right, strata.labelled, strata.rows))
    part, shares = rows / rows.sum(), (right + 0.5) / (labelled + 1)
    gap, points = strata.mean - target, float(ndtri(level) + ndtri(ADVISED)) ** 2
    of_labels = points * float((part**2 * shares * (1 - shares) / np.maximum(labelled, 0.5)).sum())
    room = gap**2 - points * float(part @ (shares - strata.mean) ** 2) / rows.sum()
    if gap <= 0 or room * MOST_TIMES < of_labels:
        return None
    return int(np.ceil(max(of_labels / room, LEAST_TIMES) * labelled.sum()))


def _lowest(rising: Floats, share: float) -> float:
    """Return the value that this share of draws is below, at most."""
    return float(rising[max(0, int(share * (len(rising) + 1)) - 1)])

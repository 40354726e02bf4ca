"""How true and how useful probabilities are: pure functions of labels y and probabilities p.

y is (n,) of 0 and 1, p is (n,) in [0, 1], n >= 1; every function checks this through `checked` and
returns one float unless it says otherwise. numpy only, but for `corp` (scikit-learn). It knows
nothing of who made p.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats
from calibration.selection import codes, row_losses

MESH = 1001
"""Points on [0, 1] that `smece` smooths on, as many as relplot has."""

LEAST_GROUPS = 10
"""Groups of rows below which resamples are too much alike for an interval."""

_SQUARED = (np.arange(MESH // 2 + 1) / (MESH - 1)) ** 2
"""Squared distances at which the Gaussian of `smece` is taken: 0 to 0.5, where it is cut."""


def probabilities(p: ArrayLike) -> Floats:
    """Return p as (n,) floats.

    Raises:
        ValueError: another shape, no row, or a number outside [0, 1].
    """
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"expected probabilities of shape (n,), n >= 1, got {values.shape}")
    if not (values.min() >= 0 and values.max() <= 1):
        wrong = values[~((values >= 0) & (values <= 1))]
        raise ValueError(f"probabilities must lie in [0, 1], got {wrong[0]} ({len(wrong)} in all)")
    return values


def checked(y: ArrayLike, p: ArrayLike) -> tuple[Floats, Floats]:
    """Return (y, p) as floats of shape (n,).

    Raises:
        ValueError: as `probabilities`; y of another length; a label other than 0 and 1.
    """
    values, labels = probabilities(p), np.asarray(y, dtype=np.float64)
    if labels.shape != values.shape:
        raise ValueError(f"y has shape {labels.shape} and p has shape {values.shape}")
    other = labels[(labels != 0) & (labels != 1)]
    if len(other):
        raise ValueError(f"labels must be 0 or 1, got {other[0]}")
    return labels, values


def brier(y: ArrayLike, p: ArrayLike) -> float:
    """Return the mean of (p - y)^2, in [0, 1] (Brier 1950)."""
    labels, values = checked(y, p)
    return float(np.mean((values - labels) ** 2))


def corp(y: ArrayLike, p: ArrayLike) -> tuple[float, float, float]:
    """Return (miscalibration, discrimination, uncertainty) of the Brier score, each >= 0.

    CORP (Dimitriadis, Gneiting and Jordan 2021): with q the isotonic fit of y on p, and the base
    rate as the forecast that knows nothing, they are brier(p) - brier(q), brier(base) - brier(q)
    and brier(base); the score is the first less the second plus the third. No bins are chosen.
    """
    from sklearn.isotonic import isotonic_regression

    labels, values = checked(y, p)
    order = np.argsort(values)
    ends, hits = _tie_blocks(values[order], labels[order])
    rows = np.diff(ends, prepend=0)
    fitted = isotonic_regression(hits / rows, sample_weight=rows.astype(np.float64))
    best = float((rows * fitted * (1 - fitted)).sum() / len(labels))  # hits of a pool are its rate
    base = float(labels.mean() * (1 - labels.mean()))
    return max(0.0, brier(labels, values) - best), max(0.0, base - best), base


def log_loss(y: ArrayLike, p: ArrayLike) -> float:
    """Return the mean negative log likelihood in nats, p clipped to [1e-6, 1 - 1e-6]."""
    labels, values = checked(y, p)
    return float(row_losses(labels, values).mean())


def auroc(y: ArrayLike, p: ArrayLike) -> float:
    """Return P(p of a hit > p of a miss), ties half; NaN where y has one class (Mann-Whitney)."""
    labels, values = checked(y, p)
    hits = labels.sum()
    misses = len(labels) - hits
    if not hits or not misses:
        return float("nan")
    order = np.argsort(values)
    ends, per_hit = _tie_blocks(values[order], labels[order])
    sizes = np.diff(ends, prepend=0)
    middle = ends - (sizes - 1) / 2  # the mean rank, from 1, of each block of ties
    return float((middle @ per_hit - hits * (hits + 1) / 2) / (hits * misses))


def _tie_blocks(ordered: Floats, labels: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return where each run of equal values ends (exclusive), and the labels' sum within it."""
    ends = np.append(np.flatnonzero(np.diff(ordered)) + 1, len(ordered))
    return ends, np.add.reduceat(labels, np.append(0, ends[:-1]))


def smece(y: ArrayLike, p: ArrayLike) -> float:
    """Return the smooth expected calibration error, in [0, 1] (Błasiok and Nakkiran 2023).

    The residuals p - y are smoothed along p by a Gaussian reflected at 0 and 1, and their absolute
    values averaged; the bandwidth is the one that equals the result, so there are no bins to
    choose. The number is that of the package `relplot` to about 1e-3, with its conventions: the
    Gaussian is cut at 0.5, and a row at exactly 0 or 1 weighs half. The mesh and its mirror image
    are a circle, so that one bandwidth costs one FFT. A true model shows more than 0 on a finite
    sample: compare with `smece_floor`.
    """
    labels, values = checked(y, p)
    place = values * (MESH - 1)
    left = np.minimum(place.astype(np.int64), MESH - 2)
    share = place - left

    def waves(weights: Floats) -> NDArray[np.complex128]:
        grid = np.bincount(left, weights * (1 - share), MESH)
        grid += np.bincount(left + 1, weights * share, MESH)
        return np.fft.rfft(np.concatenate([grid, grid[-2:0:-1]]))

    signals = np.stack([waves(values - labels), waves(np.ones(len(values)))])

    def smoothed(sigma: float) -> float:
        half = np.exp(-_SQUARED / (2 * sigma**2))
        kernel = np.zeros(2 * MESH - 2)
        kernel[: len(half)], kernel[1 - len(half) :] = half, half[:0:-1]
        both = np.fft.irfft(signals * np.fft.rfft(kernel), len(kernel))[:, :MESH]
        return float(np.abs(both[0]).sum() / both[1].sum())

    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if smoothed(middle) > middle else (low, middle)
    return min(1.0, smoothed(high))


def smece_floor(p: ArrayLike, *, draws: int = 200, random_state: int = 0) -> tuple[float, float]:
    """Return the mean and the 95 % point of `smece` where p (n,) is exactly calibrated.

    Labels are drawn from p itself. A measured smECE below the second number cannot be told from
    exact calibration at this sample size.
    """
    values, rng = probabilities(p), np.random.default_rng(random_state)
    found = [smece(rng.random(len(values)) < values, values) for _ in range(draws)]
    return float(np.mean(found)), float(np.quantile(found, 0.95))


def ece_debiased(
    y: ArrayLike, p: ArrayLike, *, bins: int = 15, draws: int = 200, random_state: int = 0
) -> float:
    """Return the equal-mass ECE less what exact calibration would show, and never below 0.

    The plug-in (mean |accuracy - confidence| over bins of as many rows) is about 0.09 for a true
    model of 200 rows; that mean, over `draws` samples of labels drawn from p, is taken off.
    """
    labels, values = checked(y, p)
    order = np.argsort(values, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    starts = np.cumsum([0] + [len(part) for part in parts[:-1]])

    def plug_in(rows: Floats) -> Any:
        gaps = np.add.reduceat((rows - values)[..., order], starts, axis=-1)
        return np.abs(gaps).sum(axis=-1) / len(order)

    rng = np.random.default_rng(random_state)
    null = [plug_in((rng.random(len(values)) < values).astype(np.float64)) for _ in range(draws)]
    return max(0.0, float(plug_in(labels) - np.mean(null)))


def expected_errors(y: ArrayLike, p: ArrayLike) -> Floats:
    """Return (n,): errors among the 1, 2, ..., n most confident rows, averaged over breaks of ties.

    Within a run of equal p every order is as likely, so the expected count grows in a straight
    line; no random numbers are needed.
    """
    labels, values = checked(y, p)
    order = np.argsort(-values, kind="stable")
    ends, wrong = _tie_blocks(-values[order], 1 - labels[order])
    known = np.append(0.0, np.cumsum(wrong))
    return np.asarray(
        np.interp(np.arange(1, len(order) + 1), np.append(0, ends), known), dtype=np.float64
    )


def aurc(y: ArrayLike, p: ArrayLike) -> float:
    """Return the area under the risk-coverage curve: mean error rate of the k most confident.

    In [0, 1], lower is better (Geifman and El-Yaniv 2017); ties are averaged over.
    """
    errors = expected_errors(y, p)
    return float(np.mean(errors / np.arange(1, len(errors) + 1)))


def augrc(y: ArrayLike, p: ArrayLike) -> float:
    """Return the area under the generalised risk-coverage curve (Traub et al. 2024), in [0, 1/2].

    The mean over k of the share of *all* rows that is both accepted and wrong; unlike `aurc` it
    does not weigh the few most confident rows above all others.
    """
    errors = expected_errors(y, p)
    return float(np.mean(errors / len(errors)))


def naurc(y: ArrayLike, p: ArrayLike) -> float:
    """Return how far `aurc` has come from chance (0) to the oracle (1); NaN where y has one class.

    Below 0 the confidence is worse than none.
    """
    labels, values = checked(y, p)
    chance, oracle = 1 - labels.mean(), aurc(labels, labels)
    if not 0 < chance < 1:
        return float("nan")
    return float((chance - aurc(labels, values)) / (chance - oracle))


def nauc(y: ArrayLike, p: ArrayLike) -> float:
    """Return MTEB's nAUC of abstention: 1 for the oracle, 0 for chance; NaN where y has one class.

    Accuracy where the least confident 0, 10, ..., 90 % are left out, by the trapezoidal rule, from
    the flat curve's area to the oracle's (Gisserot-Boukhlef et al. 2024); ties are averaged over.
    """
    errors, n = expected_errors(y, p), len(np.asarray(y))
    kept = np.array([n - min(round(i / 10 * n), n - 1) for i in range(10)])
    hits = n - errors[-1]
    if not 0 < hits < n:
        return float("nan")

    def area(accuracy: Floats) -> float:
        return float((accuracy[1:] + accuracy[:-1]).sum() / 20)

    flat, oracle = 0.9 * hits / n, area(np.minimum(1.0, hits / kept))
    return float((area(1 - errors[kept - 1] / kept) - flat) / (oracle - flat))


def coverage(p: ArrayLike, threshold: float) -> float:
    """Return the share of rows with p >= threshold."""
    return float((probabilities(p) >= threshold).mean())


def selective_accuracy(y: ArrayLike, p: ArrayLike, threshold: float) -> float:
    """Return the mean of y over the rows with p >= threshold; NaN where there is none."""
    labels, values = checked(y, p)
    kept = labels[values >= threshold]
    return float(kept.mean()) if len(kept) else float("nan")


def band(
    y: ArrayLike, p: ArrayLike, middle: float, *, width: float = 0.1
) -> tuple[int, float, float]:
    """Return (rows, mean of p, mean of y) of the rows within width / 2 of `middle`; NaN for none.

    What a confidence of 0.7 is worth: of exactly calibrated ones the two means agree.
    """
    labels, values = checked(y, p)
    near = np.abs(values - middle) <= width / 2
    if not near.any():
        return 0, float("nan"), float("nan")
    return int(near.sum()), float(values[near].mean()), float(labels[near].mean())


def bootstrap_interval(
    metric: Callable[[Floats, Floats], float],
    y: ArrayLike,
    p: ArrayLike,
    groups: Sequence[Hashable] | NDArray[Any] | None = None,
    *,
    level: float = 0.95,
    draws: int = 500,
    random_state: int = 0,
) -> tuple[float, float]:
    """Return (low, high) of metric(y, p), by resampling whole groups (n,); None: a row a group.

    The percentiles of the draws, moved so that their mean is the estimate: a resample is a little
    less calibrated than the sample it came from, which alone would lift an interval of `smece` off
    its own estimate. (For a true model that interval does not reach 0: see `smece_floor`.)
    Draws where the metric is NaN are left out; NaN twice where all are, and where there are fewer
    than `LEAST_GROUPS` groups.
    """
    labels, values = checked(y, p)
    number, rng = codes(groups, len(labels)), np.random.default_rng(random_state)
    rows, sizes = np.argsort(number, kind="stable"), np.bincount(number)
    if len(sizes) < LEAST_GROUPS:
        return float("nan"), float("nan")
    starts = np.cumsum(sizes) - sizes
    found = np.empty(draws)
    for i in range(draws):
        drawn = rng.integers(len(sizes), size=len(sizes))
        many = sizes[drawn]
        offset = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        take = rows[np.repeat(starts[drawn], many) + offset]
        found[i] = metric(labels[take], values[take])
    found = found[~np.isnan(found)]
    if not len(found):
        return float("nan"), float("nan")
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    shift = metric(labels, values) - found.mean()
    return float(low + shift), float(high + shift)

"""The calibration error: smooth, in bins, and what chance alone would show.

`y` is (n,) of 0 and 1, `p` is (n,) in [0, 1], n >= 1: `calibration.metrics` checks. The import
needs numpy only; `smece_interval` and `ece_debiased` need SciPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from calibration import arrays
from calibration.arrays import Floats, Groups, Ints
from calibration.metrics import intervals


def dependence(y: Floats, p: Floats, number: Ints) -> float:
    """Return how much the labels of one group depend on each other: 0 not at all, 1 fully.

    Full dependence means that one uniform number u decides all labels of a group (n,): a label is 1
    if u < p. The product of two residuals y - p of one group is then min(p, q) - p q on average.
    The result is the sum of these products over all pairs, divided by its value at full dependence,
    with one standard error, by group, added. The residuals are taken around their mean, so that a p
    which is too high everywhere does not look like dependence. It is 0 if no group has two rows,
    and 1 if all p are 0 or 1, or if there is one group.
    """
    sizes, residuals = np.bincount(number), y - p
    if sizes.max() < 2:
        return 0.0
    if len(sizes) < 2:
        return 1.0
    residuals = (residuals - residuals.mean()) * np.sqrt(len(sizes) / (len(sizes) - 1))
    together = np.bincount(number, residuals) ** 2 - np.bincount(number, residuals**2)
    order = np.lexsort((p, number))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    above = np.repeat(sizes, sizes) - 1 - rank
    least = 2 * np.bincount(number[order], p[order] * above)
    most = least - (np.bincount(number, p) ** 2 - np.bincount(number, p**2))
    if most.sum() <= 0:
        return 1.0
    share = together.sum() / most.sum()
    error = np.sqrt(((together - share * most) ** 2).sum()) / most.sum()
    return float(np.clip(share + error, 0, 1))


def sample_null_labels(
    p: ArrayLike, draws: int, rng: Generator, *, groups: Groups = None, y: ArrayLike | None = None
) -> Iterator[Floats]:
    """Yield labels (n,) of 0 and 1, `draws` times, each 1 with exactly the probability p.

    Rows of one group (n,) are as dependent as the labels y (`dependence`); without y they depend
    fully, the worst case. With probability sqrt(dependence) a label is decided by the uniform
    number of its group, otherwise by its own.
    """
    values = arrays.check_probabilities(p)
    number = arrays.group_codes(groups, len(values))
    count, together = int(number.max()) + 1, 0.0
    if count < len(values):
        together = 1.0 if y is None else dependence(*arrays.check_y_p(y, values), number)
    for _ in range(draws):
        u = rng.random(len(values))
        if together:
            shared = rng.random(len(values)) < np.sqrt(together)
            u = np.where(shared, rng.random(count)[number], u)
        yield (u < values).astype(np.float64)


DRAWS = 500  # draws of labels behind a consistency band


def bins(values: Floats) -> Ints:
    """Return (n,) bin numbers from 0, rising with the value; bins have about equally many rows.

    There is one bin per 40 rows, but at least 4 and at most 15; equal values stay together. The
    order of the rows does not matter.
    """
    count = int(np.clip(len(values) // 40, 4, 15))
    edges = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)[1:-1], method="lower"))
    number = np.searchsorted(edges, values, side="left")
    return np.unique(number, return_inverse=True)[1].astype(np.int64)


def consistency_band(y: Floats, p: Floats, *, groups: Groups = None) -> tuple[Floats, Floats]:
    """Return (low, high), one per bin of `bins`: where 95% of its shares lie if p is exact.

    Labels are drawn as dependent within a group (n,) as the given ones (`sample_null_labels`).
    """
    number, rng = bins(p), np.random.default_rng(0)
    drawn = sample_null_labels(p, DRAWS, rng, groups=groups, y=y)
    null = np.array([np.bincount(number, each) for each in drawn]) / np.bincount(number)
    low, high = np.quantile(null, [0.025, 0.975], axis=0)
    return low, high


def ece_debiased(y: Floats, p: Floats) -> float:
    """Return the equal-mass ECE in [0, 1], corrected for chance.

    Chance can only add to the plug-in estimate, the mean |accuracy - confidence| over `bins`. The
    result is the gap e for which bins that are all off by e would show the plug-in on average, each
    with the binomial error of its rate (hits + 1) / (rows + 2), an idea of Kumar, Liang and Ma
    (2019); 0 if chance alone shows more.
    """
    from scipy.special import ndtr

    number = bins(p)
    rows = np.bincount(number)
    share = rows / len(p)
    rate = (np.bincount(number, y) + 1) / (rows + 2)
    error = np.sqrt(rate * (1 - rate) / rows)
    plug_in = float(np.abs(np.bincount(number, y - p)).sum() / len(p))

    def shows_less(gap: float) -> bool:
        scaled = gap / error  # below: the mean of |gap + a normal error|
        density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
        return bool(share @ (2 * error * density + gap * (2 * ndtr(scaled) - 1)) < plug_in)

    return arrays.bisect(shows_less, 0.0, 1.0) if shows_less(0.0) else 0.0


MESH = 1001  # points on [0, 1] that `smece` smooths on, as many as relplot has
# confidences at which the sign of the error may change, for the upper end of `smece_interval`
CUTS = 16
# squared distances at which the Gaussian of `smece` is taken: 0 to 0.5, where it is cut
_SQUARED = (np.arange(MESH // 2 + 1) / (MESH - 1)) ** 2

Waves = NDArray[np.complex128]


class _Mesh:
    """Rows at confidences p (n,) on a mesh, with its mirror image a circle: one FFT a bandwidth."""

    def __init__(self, p: Floats) -> None:
        place = p * (MESH - 1)
        self._left = np.minimum(place.astype(np.int64), MESH - 2)
        self._share = place - self._left
        self._rows = self.waves(np.ones(len(p)))

    def waves(self, weights: Floats) -> Waves:
        """Return the transform of weights (n,) on the circle."""
        grid = np.bincount(self._left, weights * (1 - self._share), MESH)
        grid += np.bincount(self._left + 1, weights * self._share, MESH)
        return np.fft.rfft(np.concatenate([grid, grid[-2:0:-1]]))

    def error(self, waves: Waves, sigma: float) -> Floats:
        """Return the mean absolute value (m,) of residuals (m, waves) smoothed by one bandwidth."""
        half = np.exp(-_SQUARED / (2 * sigma**2))
        kernel = np.zeros(2 * MESH - 2)
        kernel[: len(half)], kernel[1 - len(half) :] = half, half[:0:-1]
        window = np.fft.rfft(kernel)
        smoothed = np.fft.irfft(waves * window, len(kernel))[..., :MESH]
        rows = np.fft.irfft(self._rows * window, len(kernel))[:MESH]
        return np.asarray(np.abs(smoothed).sum(axis=-1) / rows.sum())

    def errors(self, waves: Waves, sigmas: Floats) -> Floats:
        """Return `error` (m,) of residuals (m, waves), each at its own bandwidth of sigmas (m,)."""
        errors = np.empty(len(sigmas))
        for sigma in np.unique(sigmas):
            of_it = sigmas == sigma
            errors[of_it] = self.error(waves[of_it], float(sigma))
        return errors

    def smece(self, waves: Waves) -> Floats:
        """Return the smooth calibration error (m,) of residuals (m, waves)."""
        sigmas = _bisect_fixed_points(lambda s: self.errors(waves, s), len(waves))
        return np.minimum(1.0, self.errors(waves, sigmas))


def _bisect_fixed_points(falling: Callable[[Floats], Floats], size: int) -> Floats:
    """Return the sigmas (size,) in [0, 1] that equal falling(sigma), to about 1e-3 from above."""
    low, high = np.zeros(size), np.ones(size)
    for _ in range(10):
        middle = (low + high) / 2
        above = falling(middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def smece(y: Floats, p: Floats) -> float:
    """Return the smooth expected calibration error, in [0, 1] (Błasiok and Nakkiran 2023).

    The residuals p - y are smoothed along p by a Gaussian reflected at 0 and 1, and their absolute
    values are averaged; the bandwidth is the one that equals the result. It is that of the package
    `relplot` to about 1e-3, with its conventions. An exact model shows about `smece_floor`.
    """
    mesh = _Mesh(p)
    return float(mesh.smece(mesh.waves(p - y)[None])[0])


def smece_floor(
    p: ArrayLike,
    *,
    groups: Groups = None,
    y: ArrayLike | None = None,
    draws: int = 200,
    random_state: int = 0,
) -> tuple[float, float]:
    """Return the mean and the 95% point of `smece` if p (n,) is exactly calibrated.

    Labels are drawn by `sample_null_labels`. A measured smECE below the second number cannot be
    told from exact calibration at this sample size.
    """
    values, rng = arrays.check_probabilities(p), np.random.default_rng(random_state)
    drawn, mesh = sample_null_labels(values, draws, rng, groups=groups, y=y), _Mesh(values)
    null_errors = mesh.smece(np.stack([mesh.waves(values - labels) for labels in drawn]))
    return float(np.mean(null_errors)), float(np.quantile(null_errors, 0.95))


def smece_interval(
    y: Floats, p: Floats, groups: Groups = None, *, draws: int = 500, random_state: int = 0
) -> intervals.Interval:
    """Return (low, high), in [0, 1], that contain the true smECE with a probability of 95%.

    The interval inverts two tests, as a bootstrap fails near 0. Let g(s) be the true error smoothed
    by s and g'(s) the measured one; both fall with s, and the smECE is where g(s) = s.

    low: g' is at most g plus the smoothed noise, so low is the estimate minus the noise at its own
    bandwidth, or 0. The noise is the upper 2.5% point of the error of the residuals with a random
    sign per group (`draws` times), or of those of exactly calibrated labels (`sample_null_labels`),
    if that is higher: of a rare event the sample may hold none.

    high: |smoothed error| is a sum of residuals, each times a number in [-1, 1]; with the right
    numbers it is g, with any others less. So g'(s) is below g(s) by more than z standard errors of
    such a sum with a probability of at most 2.5%, and every s that would need this is rejected. The
    standard error is that of the sums by group of y - p, with one change of sign along p, at the
    worst of `CUTS`, and with one more group, as large as the largest, whose residuals are all 1.

    The interval covers more than 95% where chance dominates. (NaN, NaN) below `MIN_GROUPS` groups.
    """
    number, rng = arrays.group_codes(groups, len(y)), np.random.default_rng(random_state)
    n_groups = int(number.max()) + 1
    if n_groups < intervals.MIN_GROUPS:
        return intervals.UNKNOWN
    mesh, residuals = _Mesh(p), p - y
    waves = mesh.waves(residuals)[None]
    (sigma,) = _bisect_fixed_points(lambda s: mesh.errors(waves, s), 1)
    signs = rng.integers(0, 2, size=(draws, n_groups)) * 2.0 - 1
    flipped = np.stack([mesh.waves(sign[number] * residuals) for sign in signs])
    drawn = sample_null_labels(p, draws, rng, groups=number, y=y)
    exact = np.stack([mesh.waves(p - each) for each in drawn])
    noise = max(
        np.quantile(mesh.error(each, sigma), (1 + intervals.LEVEL) / 2) for each in (flipped, exact)
    )
    low = float(mesh.error(waves, sigma)[0] - noise)

    cuts = [-1.0, *np.quantile(p, np.arange(1, CUTS) / CUTS)]
    sums = (np.bincount(number, np.where(p > cut, residuals, -residuals)) for cut in cuts)
    squares = max(float((of_group**2).sum()) for of_group in sums)
    squares += float(np.bincount(number).max()) ** 2
    z = intervals.student_point(intervals.LEVEL, intervals.effective_groups(number))

    def least(s: Floats) -> Floats:
        return z * np.sqrt(np.maximum(0.0, squares / len(p) ** 2 - s * s / n_groups))

    (high,) = _bisect_fixed_points(lambda s: mesh.errors(waves, s) + least(s), 1)
    return max(0.0, low), float(high)

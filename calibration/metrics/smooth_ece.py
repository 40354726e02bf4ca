"""The smooth calibration error, its value by chance alone, and an interval that is valid at 0.

y is (n,) of 0 and 1, p is (n,) in [0, 1], n >= 1, checked as `arrays.check_y_p`. The
import needs numpy only, `smece_interval` SciPy too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats, Groups, check_probabilities, check_y_p, group_codes
from calibration.effective_sample_size import effective_groups
from calibration.metrics.intervals import LEVEL, MIN_GROUPS, UNKNOWN, Interval, student_point
from calibration.metrics.null_labels import sample_null_labels

MESH = 1001
"""Points on [0, 1] that `smece` smooths on, as many as relplot has."""

CUTS = 16
"""Confidences at which the sign of the error may change, for the upper end of `smece_interval`."""

_SQUARED = (np.arange(MESH // 2 + 1) / (MESH - 1)) ** 2
"""Squared distances at which the Gaussian of `smece` is taken: 0 to 0.5, where it is cut."""

Waves = NDArray[np.complex128]


class _Mesh:
    """Rows at confidences p (n,), put on the mesh and smoothed there.

    The mesh and its mirror image form a circle, so one bandwidth costs one FFT.
    """

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
    """Return the sigmas (size,) in [0, 1] that equal falling(sigma), to about 1e-3 from above.

    All bisections start from the same ends, so most of them ask for the same bandwidths.
    """
    low, high = np.zeros(size), np.ones(size)
    for _ in range(10):
        middle = (low + high) / 2
        above = falling(middle) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def smece(y: ArrayLike, p: ArrayLike) -> float:
    """Return the smooth expected calibration error, in [0, 1] (Błasiok and Nakkiran 2023).

    The residuals p - y are smoothed along p by a Gaussian reflected at 0 and 1, and their absolute
    values are averaged. The bandwidth is the one that equals the result, so there are no bins to
    choose. The number is that of the package `relplot` to about 1e-3, with its conventions: the
    Gaussian is cut at 0.5, and a row at exactly 0 or 1 has half the weight. An exactly calibrated
    model shows more than 0 on a finite sample: compare with `smece_floor`.
    """
    labels, values = check_y_p(y, p)
    mesh = _Mesh(values)
    return float(mesh.smece(mesh.waves(values - labels)[None])[0])


def smece_floor(
    p: ArrayLike,
    *,
    groups: Groups = None,
    y: ArrayLike | None = None,
    draws: int = 200,
    random_state: int = 0,
) -> tuple[float, float]:
    """Return the mean and the 95% point of `smece` if p (n,) is exactly calibrated.

    Labels are drawn from p itself by `sample_null_labels`, as dependent within a group (n,) as the
    labels y are, or as dependent as possible without y. A measured smECE below the second number
    cannot be told from exact calibration at this sample size.
    """
    values, rng = check_probabilities(p), np.random.default_rng(random_state)
    drawn, mesh = sample_null_labels(values, draws, rng, groups=groups, y=y), _Mesh(values)
    null_errors = mesh.smece(np.stack([mesh.waves(values - labels) for labels in drawn]))
    return float(np.mean(null_errors)), float(np.quantile(null_errors, 0.95))


def smece_interval(
    y: ArrayLike,
    p: ArrayLike,
    groups: Groups = None,
    *,
    draws: int = 500,
    random_state: int = 0,
) -> Interval:
    """Return (low, high), in [0, 1], that contain the true smECE with a probability of 95%.

    The interval inverts two tests, because a bootstrap fails near 0, where chance can only add to
    an absolute value. Let g(s) be the true error smoothed by s and g'(s) the measured one; both
    fall with s, and the smECE is where g(s) = s.

    low: g' is at most g plus the smoothed noise. So low is the estimate minus the noise at its own
    bandwidth, or 0 if that is negative. The noise is the upper 2.5% point of the error of the
    residuals with a random sign per group (`draws` times), or of those of exactly calibrated labels
    (`sample_null_labels`), if that is higher: of a rare event the sample may hold none. So an smECE
    that chance alone explains has a low of 0.

    high: |smoothed error| is a sum of residuals, each times a number in [-1, 1]; with the right
    numbers it is g, with any others less. So g'(s) is below g(s) by more than z standard errors of
    such a sum with a probability of at most 2.5%, and every s that would need this is
    rejected. The standard error is that of the sums by group of y - p, with one change of sign
    along p, at the worst of `CUTS`, and with one more group, as large as the largest, whose
    residuals are all 1: a sample without a miss does not show that there are none.

    Both are bounds, so the interval covers more than 95% where chance dominates, and about 95%
    elsewhere. (NaN, NaN) with fewer than `MIN_GROUPS` groups.
    """
    labels, values = check_y_p(y, p)
    number, rng = group_codes(groups, len(labels)), np.random.default_rng(random_state)
    n_groups = int(number.max()) + 1
    if n_groups < MIN_GROUPS:
        return UNKNOWN
    mesh, residuals = _Mesh(values), values - labels
    waves = mesh.waves(residuals)[None]
    (sigma,) = _bisect_fixed_points(lambda s: mesh.errors(waves, s), 1)
    signs = rng.integers(0, 2, size=(draws, n_groups)) * 2.0 - 1
    flipped = np.stack([mesh.waves(sign[number] * residuals) for sign in signs])
    drawn = sample_null_labels(values, draws, rng, groups=number, y=labels)
    exact = np.stack([mesh.waves(values - each) for each in drawn])
    noise = max(np.quantile(mesh.error(each, sigma), (1 + LEVEL) / 2) for each in (flipped, exact))
    low = float(mesh.error(waves, sigma)[0] - noise)

    cuts = [-1.0, *np.quantile(values, np.arange(1, CUTS) / CUTS)]
    squares = max(
        float((np.bincount(number, np.where(values > cut, residuals, -residuals)) ** 2).sum())
        for cut in cuts
    )
    squares += float(np.bincount(number).max()) ** 2
    z = student_point(LEVEL, effective_groups(number))

    def least(s: Floats) -> Floats:
        return z * np.sqrt(np.maximum(0.0, squares / len(values) ** 2 - s * s / n_groups))

    (high,) = _bisect_fixed_points(lambda s: mesh.errors(waves, s) + least(s), 1)
    return max(0.0, low), float(high)

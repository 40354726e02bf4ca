"""Maps of one score to a probability: isotonic and beta; numpy only.

Each is a frozen value that survives plain JSON bit for bit (`maps.map_from_dict`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from calibration import arrays
from calibration.arrays import Floats

TILT = 1e-3  # share of an isotonic probability that rises strictly with the score
# scales from the mean beyond which that share no longer rises as a sigmoid, but as 1 - 1 / z
EDGE = 5.0

# the ends of an isotonic probability: the numbers next to 0 and to 1
LOWEST, HIGHEST = 2.0**-1022, 1 - 2.0**-53


def _heavy_tailed_sigmoid(z: Floats) -> Floats:
    """Return a number in [0, 1] that rises with z: a sigmoid whose tails keep rising."""
    near = np.minimum(np.maximum(z, -EDGE), EDGE)
    inner = arrays.sigmoid(near)
    beyond = near != z
    if not beyond.any():
        return inner
    tail = EDGE * arrays.sigmoid(-EDGE) / np.maximum(np.abs(z), EDGE)
    return np.where(beyond, np.where(z > 0, 1 - tail, tail), inner)


class _ScoreMap:
    """What the maps of one score share; each has `predict_checked`, for checked scores."""

    __slots__ = ()
    kind: ClassVar[str]

    def predict(self, scores: ArrayLike) -> Floats:
        """Return (n,) probabilities in (0, 1) for scores (n,)."""
        return self.predict_checked(arrays.as_scores(scores))

    @abstractmethod
    def predict_checked(self, s: Floats) -> Floats:
        """`predict` for scores that are (n,) and finite, without checking them again."""

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain JSON values, with its `kind`."""
        slots: tuple[str, ...] = self.__slots__
        names = [name for name in slots if not name.startswith("_")]
        return {"kind": self.kind, **{name: arrays.plain(getattr(self, name)) for name in names}}


@dataclass(frozen=True, slots=True)
class IsotonicMap(_ScoreMap):
    """Straight lines between knots (x, y), flat beyond the first and the last; strictly rising.

    A flat run would tie different scores. So `TILT` of the probability is a sigmoid of z = `(score
    - mean) / scale`, which continues as a hyperbola beyond `EDGE`. The order of the rows stays that
    of the scores, as far as the digits of a double allow. No probability is exactly 0 or 1.
    """

    kind: ClassVar[str] = "isotonic"
    x: tuple[float, ...]
    y: tuple[float, ...]
    mean: float = 0.0
    scale: float = 1.0
    _arrays: tuple[Floats, ...] = arrays.arrays_field()

    def __post_init__(self) -> None:
        arrays.set_finite_numbers(self, "x", "y")
        arrays.freeze_arrays(self, self.x, self.y)
        for name in ("mean", "scale"):
            object.__setattr__(self, name, arrays.finite_number(name, getattr(self, name)))
        if len(self.x) != len(self.y):
            raise ValueError(f"x and y must be as long, got {len(self.x)} and {len(self.y)} knots")
        arrays.check_rising("x", self.x, strictly=True)
        arrays.check_rising("y", self.y)
        if self.scale <= 0:
            raise ValueError(f"scale must be positive, got {self.scale}")

    def predict_checked(self, s: Floats) -> Floats:
        """`predict` for checked scores."""
        x, y = self._arrays
        rising = _heavy_tailed_sigmoid((s - self.mean) / self.scale)
        p = (1 - TILT) * np.interp(s, x, y) + TILT * rising
        return np.minimum(np.maximum(p, LOWEST), HIGHEST)


@dataclass(frozen=True, slots=True)
class BetaMap(_ScoreMap):
    """`sigmoid(a log(s) - b log(1 - s) + c)` of s = sigmoid(score) (Kull et al. 2017); never falls.

    The scores are log odds. With a = b = 1 and c = 0 it is the sigmoid itself. Unlike the logistic
    map, it can bend one end more than the other.
    """

    kind: ClassVar[str] = "beta"
    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            object.__setattr__(self, name, arrays.finite_number(name, getattr(self, name)))
        if self.a < 0 or self.b < 0:
            raise ValueError(f"a and b must not be negative, got {self.a} and {self.b}")

    def predict_checked(self, s: Floats) -> Floats:
        """`predict` for checked scores."""
        return arrays.sigmoid(self.b * np.logaddexp(0, s) - self.a * np.logaddexp(0, -s) + self.c)

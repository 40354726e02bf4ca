"""The maps that production evaluates: numbers in, probabilities out, numpy only.

A map is the result of a calibrator: a frozen value that survives plain JSON bit for bit.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from calibration import arrays
from calibration.arrays import Floats

BLOCK = 2048  # rows that are computed together: few enough to stay in a core's cache
TILT = 1e-3  # share of an isotonic probability that rises strictly with the score
# scales from the mean beyond which that share no longer rises as a sigmoid, but as 1 - 1 / z
EDGE = 5.0

# the ends of an isotonic probability: the numbers next to 0 and to 1
LOWEST, HIGHEST = 2.0**-1022, 1 - 2.0**-53


def _is_empty(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not value


def _finite_logits(logits: Floats) -> Floats:
    if not arrays.all_finite(logits):
        raise ValueError("the features are too large: a logit is not a finite number")
    return logits


@dataclass(frozen=True, slots=True)
class LogisticMap:
    """`sigmoid(intercept + sum(coef * (x - mean) / scale))` over d features.

    If `low` and `high` are given, each feature is first clipped to that range.
    """

    coef: tuple[float, ...]
    intercept: float
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    _arrays: tuple[Floats, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bounds = [n for n in ("low", "high") if not _is_empty(getattr(self, n))]
        arrays.set_finite_numbers(self, "coef", "mean", "scale", *bounds)
        for name in {"low", "high"}.difference(bounds):
            object.__setattr__(self, name, ())
        object.__setattr__(self, "intercept", arrays.finite_number("intercept", self.intercept))
        names = ("coef", "mean", "scale", *(("low", "high") if bounds else ()))
        lengths = {name: len(getattr(self, name)) for name in names}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"expected one number a feature of each, got {lengths}")
        if any(a > b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError("low must not be above high")
        if min(self.scale) <= 0:
            raise ValueError(f"scale must be positive, got {min(self.scale)}")
        if not math.isfinite(sum(abs(c) / s for c, s in zip(self.coef, self.scale, strict=True))):
            raise ValueError("coef is too large for scale: a logit would not be a finite number")
        arrays.freeze_arrays(self, self.coef, self.mean, self.scale, self.low, self.high)

    def contributions(self, X: ArrayLike) -> Floats:
        """Return (n, d): what each feature adds to the logit; rows sum to `logit - intercept`."""
        return np.asarray(self._arrays[0] * self.standardised(X), dtype=np.float64)

    def standardised(self, X: ArrayLike) -> Floats:
        """Return (n, d): each feature clipped to its range, less its mean, divided by its scale."""
        return self._standardised(arrays.as_features(X, len(self.coef)))

    def _standardised(self, x: Floats) -> Floats:
        _, mean, scale, low, high = self._arrays
        if len(low):
            x = np.minimum(np.maximum(x, low), high)
        return np.asarray((x - mean) / scale, dtype=np.float64)

    def logit(self, X: ArrayLike) -> Floats:
        """Return (n,): the log odds of each row of X (n, d), or of X (n,) if d is 1; finite."""
        if len(self.coef) == 1:
            return self._line(arrays.as_scores(X))
        x = arrays.as_features(X, len(self.coef))
        blocks = (x[i : i + BLOCK] for i in range(0, max(1, len(x)), BLOCK))
        parts = [(self._arrays[0] * self._standardised(block)).sum(axis=1) for block in blocks]
        return _finite_logits(np.concatenate(parts) + self.intercept)

    def logit_and_standardised(self, x: Floats) -> tuple[Floats, Floats]:
        """`logit` (n,) and `standardised` (n, d) of checked features x (n, d)."""
        z = self._standardised(x)
        return _finite_logits((self._arrays[0] * z).sum(axis=1) + self.intercept), z

    def _line(self, s: Floats) -> Floats:
        if self.low:
            s = np.minimum(np.maximum(s, self.low[0]), self.high[0])
        moved = self.coef[0] * ((s - self.mean[0]) / self.scale[0])
        return _finite_logits(moved + self.intercept)

    def predict_checked(self, s: Floats) -> Floats:
        """`predict` of a map of one feature, for checked scores (n,)."""
        return arrays.sigmoid(self._line(s))

    def predict(self, X: ArrayLike) -> Floats:
        """Return (n,) probabilities in [0, 1]."""
        return arrays.sigmoid(self.logit(X))

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain JSON values, with `"kind": "logistic"`."""
        names = _KINDS["logistic"][1]
        return {"kind": "logistic", **{name: arrays.plain(getattr(self, name)) for name in names}}


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
        """`predict` for scores that are (n,) and finite."""

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain JSON values, with its `kind`."""
        slots: tuple[str, ...] = self.__slots__
        names = [name for name in slots if not name.startswith("_")]
        return {"kind": self.kind, **{name: arrays.plain(getattr(self, name)) for name in names}}


@dataclass(frozen=True, slots=True)
class IsotonicMap(_ScoreMap):
    """Straight lines between knots (x, y), flat beyond the first and the last; strictly rising.

    A flat run would tie different scores. So `TILT` of the probability is a sigmoid of z = `(score
    - mean) / scale`, which continues as a hyperbola beyond `EDGE`. No probability is exactly 0 or
    1.
    """

    kind: ClassVar[str] = "isotonic"
    x: tuple[float, ...]
    y: tuple[float, ...]
    mean: float = 0.0
    scale: float = 1.0
    _arrays: tuple[Floats, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        arrays.set_finite_numbers(self, "x", "y")
        arrays.freeze_arrays(self, self.x, self.y)
        for name in ("mean", "scale"):
            object.__setattr__(self, name, arrays.finite_number(name, getattr(self, name)))
        if len(self.x) != len(self.y):
            raise ValueError(f"x and y must be as long, got {len(self.x)} and {len(self.y)} knots")
        if (np.diff(self.x) <= 0).any():
            raise ValueError("the knots x must rise strictly")
        if (np.diff(self.y) < 0).any() or self.y[0] < 0 or self.y[-1] > 1:
            raise ValueError("the knots y must never fall and must lie in [0, 1]")
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

    The scores are log odds. With a = b = 1 and c = 0 it is the sigmoid itself.
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


ScoreMap = LogisticMap | BetaMap | IsotonicMap


@dataclass(frozen=True, slots=True)
class TwoStageMap:
    """Several features to one logit (`first`), and that logit to a probability (`second`).

    An optional `update`, learned from a few later labels, moves the log odds of that probability.

    Raises:
        ValueError: `second` or `update` takes more than one input.
    """

    first: LogisticMap
    second: ScoreMap
    update: LogisticMap | None = None

    def __post_init__(self) -> None:
        for name in ("second", "update"):
            stage = getattr(self, name)
            if isinstance(stage, LogisticMap) and (n := len(stage.coef)) != 1:
                raise ValueError(f"{name} of a two-stage map takes one logit, got {n} features")

    def predict(self, X: ArrayLike) -> Floats:
        """Return (n,) probabilities for X (n, d)."""
        p = self.second.predict_checked(self.first.logit(X))
        return p if self.update is None else self.update.predict_checked(arrays.log_odds(p))

    def contributions(self, X: ArrayLike) -> Floats:
        """Return (n, d): what each feature adds to the log odds, without the second stage's bounds.

        If the second stage is not logistic: what it adds to the first stage's logit.
        """
        added = self.first.contributions(X)
        if isinstance(self.second, LogisticMap):
            added = added * (self.second.coef[0] / self.second.scale[0])
            if self.update is not None:
                added = added * (self.update.coef[0] / self.update.scale[0])
        return added

    @property
    def max_probability(self) -> float:
        """An upper bound of what the map gives: 1, unless a logistic stage is bounded."""
        highest = 1.0
        if isinstance(self.second, LogisticMap) and self.second.high:
            highest = float(self.second.predict(self.second.high)[0])
        if self.update is None or not (highest < 1 or self.update.high):
            return highest
        return float(self.update.predict_checked(arrays.log_odds([highest]))[0])

    def as_logistic(self) -> LogisticMap:
        """Return both stages, and the update, as one logistic map of the features.

        Bounds on the logit between the stages are dropped.

        Raises:
            ValueError: the second stage is not logistic.
        """
        slope, intercept = 1.0, 0.0
        for stage in (self.second, self.update):
            if stage is None:
                continue
            if not isinstance(stage, LogisticMap):
                raise ValueError(f"expected a logistic second stage, got {type(stage).__name__}")
            a = stage.coef[0] / stage.scale[0]
            slope, intercept = a * slope, a * (intercept - stage.mean[0]) + stage.intercept
        coef = tuple(slope * c for c in self.first.coef)
        return replace(self.first, coef=coef, intercept=slope * self.first.intercept + intercept)

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain JSON values, with `"kind": "two-stage"`."""
        return {
            "kind": "two-stage",
            "first": self.first.to_dict(),
            "then": self.second.to_dict(),
            "update": None if self.update is None else self.update.to_dict(),
        }


CalibrationMap = ScoreMap | TwoStageMap

_SCORE_KINDS = ("logistic", "beta", "isotonic")
_KINDS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "logistic": (LogisticMap, ("coef", "intercept", "mean", "scale", "low", "high")),
    "beta": (BetaMap, ("a", "b", "c")),
    "isotonic": (IsotonicMap, ("x", "y", "mean", "scale")),
    "two-stage": (
        lambda first, then, update: TwoStageMap(  # `then` is the second stage on disk
            _stage("first", first, ("logistic",)),
            _stage("then", then, _SCORE_KINDS),
            None if update is None else _stage("update", update, ("logistic",)),
        ),
        ("first", "then", "update"),
    ),
}


def _stage(name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    result = map_from_dict(value)
    if (kind := value["kind"]) not in allowed:
        raise ValueError(f"{name} of a two-stage map must be {' or '.join(allowed)}, got {kind}")
    return result


def map_from_dict(d: Mapping[str, Any]) -> CalibrationMap:
    """Return the map that `to_dict` wrote; its numbers are the same to the last bit.

    Raises ValueError: an unknown kind or key, or numbers that are no map; the message says which.
    """
    if not isinstance(d, Mapping):
        raise ValueError(f"expected a map as an object with a kind, got {d!r}")
    kind = d.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown kind of map {kind!r}; this version knows {', '.join(_KINDS)}")
    make, keys = _KINDS[kind]
    arrays.check_keys(f"a {kind} map", d, ("kind", *keys))
    result: CalibrationMap = make(**{key: d[key] for key in keys})
    return result

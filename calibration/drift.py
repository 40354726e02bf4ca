"""Have the inputs changed? A sketch of the features a model was fitted on, and new rows against it.

Features in, a decision and a table out, without labels; numpy only. A move is a reason to look, not
proof of harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibration import arrays
from calibration.arrays import Floats, Groups
from calibration.metrics.intervals import effective_rows
from calibration.reliability import aligned

BINS = 20  # bins of equal mass per feature; ties reduce their number
MIN_ROWS = 4  # independent fitted rows below which `ks_bound` is not known to hold
FEW = 20  # with fewer independent new rows, the absence of an alarm says little


def ks_bound(distance: float, n: int, m: int) -> float:
    """Return an upper bound of the p-value of a two-sample Kolmogorov-Smirnov distance in [0, 1].

    min(1, 2.17 exp(-2 distance^2 n m / (n + m))) for samples of n and m, n >= 4: the inequality of
    Dvoretzky, Kiefer and Wolfowitz for two samples (Wei and Dudley 2012), proved for n = m,
    verified by computer for unequal sizes up to 200, and their conjecture beyond. Ties only make a
    distance smaller.
    """
    return min(1.0, 2.17 * math.exp(-2 * distance**2 * n * m / (n + m)))


def outside_p_value(count: int, n: int, m: int) -> float:
    """Return P(at least `count` of m new rows outside the range of n fitted ones) without a change.

    Exact for continuous values, too high with ties (Rosenbaum 1953). 0 <= count <= m.
    """
    run = math.prod((m - i) / (n + m - i) for i in range(count))
    return run * (1 + count * n / (n + m - count))


@dataclass(frozen=True, slots=True)
class FeatureSketch:
    """The distribution of one feature over the fitted rows.

    edges: K rising values, the lowest and the highest one seen and the quantiles between them.
    shares: 2 K - 1 shares of the rows, which sum to 1: at the first edge, between the first and the
    second, at the second, and so on, so that a point mass has its own bin.
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        arrays.set_finite_numbers(self, "edges", "shares")
        if (np.diff(self.edges) <= 0).any():
            raise ValueError("edges must rise strictly")
        places, least, total = 2 * len(self.edges) - 1, min(self.shares), sum(self.shares)
        if (got := len(self.shares)) != places:
            raise ValueError(f"{len(self.edges)} edges need {places} shares, got {got}")
        if least < 0 or abs(total - 1) > 1e-9:
            raise ValueError(f"shares must be at least 0 and sum to 1, got {least} and {total}")

    def cumulative(self) -> Floats:
        """Return (2 K,): for each edge, the share of fitted rows below it, then up to it."""
        return np.append(0.0, np.cumsum(self.shares))

    def median(self) -> float:
        """Return the fitted median: the lowest edge that half of the rows do not exceed."""
        return self.edges[int(np.argmax(self.cumulative()[1::2] >= 0.5 - 1e-9))]


@dataclass(frozen=True, slots=True)
class Sketch:
    """The features of n fitted rows, for `alarm` to compare new rows with."""

    names: tuple[str, ...]  # in the order of the columns
    n: int  # effective number of fitted rows
    features: tuple[FeatureSketch, ...]  # one per name
    rows: int  # fitted

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "features", tuple(self.features))
        _check_names(self.names)
        if len(self.features) != len(self.names):
            n, got = len(self.names), len(self.features)
            raise ValueError(f"{n} names need as many features, got {got}")
        if not isinstance(self.n, int) or self.n < MIN_ROWS:
            raise ValueError(f"expected at least {MIN_ROWS} independent rows, got {self.n!r}")
        if type(self.rows) is not int or self.rows < 0:
            raise ValueError(f"expected a number of rows, got {self.rows!r:.80}")

    def to_dict(self) -> dict[str, Any]:
        """Return the sketch as plain JSON values, with `"kind": "drift-sketch"`."""
        features = [
            {"name": name, "edges": list(f.edges), "shares": list(f.shares)}
            for name, f in zip(self.names, self.features, strict=True)
        ]
        return {"kind": "drift-sketch", "n": self.n, "rows": self.rows, "features": features}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Sketch:
        """Return what `to_dict` wrote; its numbers are the same to the last bit.

        Raises ValueError: not a valid sketch; the message names the feature.
        """
        arrays.check_keys("a drift sketch", d, ("kind", "n", "rows", "features"))
        if d["kind"] != "drift-sketch" or not isinstance(d["features"], list):
            raise ValueError(f"expected kind 'drift-sketch' and a list of features, got {d!r:.99}")
        features = []
        for feature in d["features"]:
            arrays.check_keys("a feature of a drift sketch", feature, ("name", "edges", "shares"))
            try:
                features.append(FeatureSketch(feature["edges"], feature["shares"]))
            except ValueError as error:
                raise ValueError(f"feature {feature['name']!r}: {error}") from error
        return cls(tuple(f["name"] for f in d["features"]), d["n"], tuple(features), d["rows"])


@dataclass(frozen=True, slots=True)
class Move:
    """How far one feature has moved: it has, if the p-value is at most the level.

    distance: Kolmogorov-Smirnov's, in [0, 1]: the largest difference in the share of rows below a
    value.
    """

    name: str
    distance: float
    fitted_median: float
    median: float
    outside: float  # share of the new rows below the lowest or above the highest fitted value
    p_value: float  # adjusted by Holm over all features


@dataclass(frozen=True, slots=True)
class Drift:
    """The comparison of a window of new rows with the fitted ones."""

    level: float
    n: int  # effective number of fitted rows
    m: int  # and of new rows
    moves: tuple[Move, ...]  # by rising p-value, then by falling distance, then by name
    fitted_rows: int
    new_rows: int

    @property
    def p_value(self) -> float:
        """Upper bound of the chance that some feature moves this clearly if nothing has changed."""
        return self.moves[0].p_value

    @property
    def fired(self) -> bool:
        """Whether the p-value is at most the level."""
        return self.p_value <= self.level

    @property
    def sentence(self) -> str:
        """The decision in words."""
        rows = f"{self.new_rows} new rows against {self.fitted_rows} fitted rows"
        if (self.new_rows, self.fitted_rows) != (self.m, self.n):
            rows += f", worth {self.m} and {self.n} independent ones"
        tail = f"(p {_p(self.p_value, '= ')}, level {self.level:g}; {rows})."
        if not self.fired:
            few = " So few show only a very large change." if self.m < FEW else ""
            return f"No feature has moved by more than chance {tail}{few}"
        moved = [move.name for move in self.moves if move.p_value <= self.level]
        return f"{len(moved)} of {len(self.moves)} features have moved, first {moved[0]} {tail}"

    def table(self, *, limit: int = 10, words: Callable[[str], str] | None = None) -> str:
        """Return a plain text table of the first `limit` features; `words` explains a name."""
        rows = [("", "moved", "fitted median", "median now", "outside the fit", "p")]
        for move in self.moves[:limit]:
            medians = f"{move.fitted_median:.4g}", f"{move.median:.4g}"
            cells = (f"{move.distance:.3f}", *medians, f"{100 * move.outside:.1f}%")
            name = f"{move.name}: {words(move.name)}" if words else move.name
            rows.append((name, *cells, _p(move.p_value)))
        return aligned(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the fields, with `fired`, `p_value` and `sentence`."""
        summary = {"fired": self.fired, "p_value": self.p_value, "sentence": self.sentence}
        return {**summary, **asdict(self), "moves": [asdict(move) for move in self.moves]}


def sketch(X: ArrayLike, names: Sequence[str], groups: Groups = None) -> Sketch:
    """Return the sketch of the fitted rows X (n, d), whose columns have these d names.

    Groups (n,) determine the effective number of rows (`metrics.intervals.effective_rows`).
    Values are kept and compared in single precision, so that the last digits of another machine do
    not split a point mass.
    """
    _check_names(tuple(names))
    x = _as_float32(arrays.as_features(X, len(names)))
    number = arrays.group_codes(groups, len(x))
    n_groups = int(number.max(initial=-1)) + 1
    if n_groups < MIN_ROWS:
        raise ValueError(f"a sketch needs at least {MIN_ROWS} independent rows, got {n_groups}")
    features = []
    for column in np.sort(x, axis=0).T.copy():
        edges = np.unique(_quantiles(column, np.arange(BINS + 1) / BINS))
        features.append(FeatureSketch(tuple(edges), tuple(np.diff(_cumulative(column, edges)))))
    n = max(MIN_ROWS, int(effective_rows(x, number)))
    return Sketch(tuple(names), n, tuple(features), len(x))


def alarm(fitted: Sketch, X: ArrayLike, *, level: float = 0.01, groups: Groups = None) -> Drift:
    """Return whether new rows X (m, d) are distributed as the fitted ones, feature by feature.

    Each feature has two tests on the counts of its bins: Kolmogorov-Smirnov's two-sample distance
    over the edges (`ks_bound`), and how many new rows lie outside the fitted range
    (`outside_p_value`), which catches a few values never seen. Both hold in finite samples, with
    ties, and with edges taken from the fitted sample. The 2 d p-values are combined by Bonferroni
    and Holm (1979): if nothing has changed, one window fires with a chance of at most `level`. For
    k windows against one sketch, give each level / k. Such tests did as well as any multivariate
    one in Rabanser et al. 2019, "Failing loudly".

    Groups (m,), such as the rephrasings of one question, determine the effective number of rows.
    """
    level = arrays.check_share("level", level)
    x = _as_float32(arrays.as_features(X, len(fitted.names)))
    if not len(x):
        raise ValueError("an alarm needs at least one new row, got none")
    n, m = fitted.n, max(1, int(effective_rows(x, arrays.group_codes(groups, len(x)))))
    moves = []
    columns = np.sort(x, axis=0).T.copy()
    for name, feature, column in zip(fitted.names, fitted.features, columns, strict=True):
        share = _cumulative(column, np.array(feature.edges))
        distance = float(np.abs(share - feature.cumulative()).max())
        outside = float(share[0] + 1 - share[-1])
        rare = outside_p_value(int(outside * m + 1e-6), n, m)
        p = min(1.0, 2 * min(ks_bound(distance, n, m), rare))
        median = float(_quantiles(column, np.array([0.5]))[0])
        moves.append(Move(name, distance, feature.median(), median, outside, p))
    moves.sort(key=lambda move: move.p_value)
    holm = np.maximum.accumulate([m.p_value * (len(moves) - i) for i, m in enumerate(moves)])
    adjusted = np.minimum(holm, 1.0).tolist()
    moves = [replace(move, p_value=p) for move, p in zip(moves, adjusted, strict=True)]
    moves.sort(key=lambda move: (move.p_value, -move.distance, move.name))
    return Drift(float(level), n, m, tuple(moves), fitted.rows, len(x))


def _as_float32(x: Floats) -> Floats:
    most = float(np.finfo(np.float32).max)
    return np.clip(x, -most, most).astype(np.float32).astype(np.float64)


def _quantiles(column: Floats, levels: Floats) -> Floats:
    """Return for each level the lowest of sorted values with at least that share up to it."""
    n = len(column)
    place = np.searchsorted(np.arange(1, n + 1) / n, levels - 1e-9)
    return np.asarray(column[np.minimum(place, n - 1)], dtype=np.float64)


def _cumulative(column: Floats, edges: Floats) -> Floats:
    """Return (2 K,): for each edge, the share of the sorted values below it, then up to it."""
    below, up_to = (np.searchsorted(column, edges, side=side) for side in ("left", "right"))
    return np.column_stack([below, up_to]).ravel() / len(column)


def _p(p: float, equals: str = "") -> str:
    return f"{equals}{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _check_names(names: tuple[str, ...]) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"expected a name for each feature, at least one, got {names!r}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"each feature needs a name of its own, got {twice!r} twice")

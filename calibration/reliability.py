"""All measurements of one confidence in a frozen result, a table to compare several, and curves.

Labels and confidences in, numbers and plain text out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Groups, as_number, check_keys, check_y_p, group_codes, plain
from calibration.group_tests import mean_lower_bounds
from calibration.metrics import calibration_error as errors
from calibration.metrics import intervals, scores
from calibration.metrics.intervals import Interval, effective_n
from calibration.thresholds import lower_bound


class Bin(NamedTuple):
    """Rows of about the same confidence."""

    confidence: float  # the mean
    accuracy: float  # the share that is right
    rows: int
    low: float  # the share's 95% range if the confidence is exact
    high: float


class Accepted(NamedTuple):
    """The rows that reach a threshold."""

    threshold: float
    rows: int
    right: int
    effective: float  # effective number of rows
    lower95: float  # of the share that is right; 0.0 without rows


class Curves(NamedTuple):
    """Bins and thresholds of the same rows."""

    bins: list[Bin]
    thresholds: list[Accepted]


def reliability_bins(y: ArrayLike, p: ArrayLike, *, groups: Groups = None) -> list[Bin]:
    """The dots of a reliability diagram: labels y (n,) of 0 and 1, confidences p (n,) in [0, 1].

    Bins have about equally many rows; `groups` (n,) widen their bands as in `consistency_band`.
    """
    labels, values = check_y_p(y, p)
    number = errors.bins(values)
    rows = np.bincount(number)
    means = (np.bincount(number, x) / rows for x in (values, labels))
    table = np.column_stack([*means, rows, *errors.consistency_band(labels, values, groups=groups)])
    return [Bin(p, share, int(n), low, high) for p, share, n, low, high in table.tolist()]


def at_thresholds(
    y: ArrayLike, p: ArrayLike, thresholds: Iterable[float], *, groups: Groups = None
) -> list[Accepted]:
    """What each threshold accepts of the same rows, with a 95% lower bound of the share right.

    It is that of Clopper and Pearson (1934) for the effective number of accepted rows; if rows
    share their group (n,), that of `calibration.group_tests.mean_lower_bound` where it is lower: a
    few groups may be alike by chance.
    """
    labels, values = check_y_p(y, p)
    number, at = group_codes(groups, len(labels)), np.array(list(thresholds), dtype=np.float64)
    reached = values >= at[:, None]
    single = int(number.max(initial=-1)) + 1 == len(number)
    bounds = np.ones(len(at)) if single else mean_lower_bounds(labels, reached, number)
    accepted = []
    for part, threshold, of_groups in zip(reached, at.tolist(), bounds.tolist(), strict=True):
        n, right, effective, bound = int(part.sum()), int(labels[part].sum()), 0.0, 0.0
        if n:
            effective = effective_n(labels[part] - right / n, group_codes(number[part], n))
            bound = min(lower_bound(right / n * effective, effective), of_groups)
        accepted.append(Accepted(threshold, n, right, effective, bound))
    return accepted


Metric = Callable[[Floats, Floats], float]  # of labels (n,) and confidences (n,)
DASH = "-"


@dataclass(frozen=True, slots=True)
class Reliability:
    """Measurements of a confidence on n labelled queries. Every field is of the same rows.

    Intervals are 95%, by query group. `*_of_base_rate` is the score of the constant
    `base_accuracy`. `accuracy_accepted` and its lower bound (`at_thresholds`) are None if no row
    reaches the threshold; `effective_accepted` is the effective number of those that do. A number
    without a value (AUROC of one class) is NaN here and null in JSON. `miscalibration` and
    `discrimination` are the Brier score's (`metrics.corp`); `naurc` and `nauc` are 0 for chance and
    1 for the oracle; `band_*` are of the rows within 0.05 of the threshold.
    """

    n: int
    base_accuracy: float
    auroc: float
    auroc_interval: Interval
    brier: float
    brier_interval: Interval
    brier_of_base_rate: float
    miscalibration: float
    discrimination: float
    log_loss: float
    log_loss_of_base_rate: float
    smece: float
    smece_interval: Interval
    smece_floor: float
    smece_floor95: float
    ece_debiased: float
    aurc: float
    augrc: float
    naurc: float
    nauc: float
    threshold: float
    accepted: int
    right_accepted: int
    accuracy_accepted: float | None
    accuracy_accepted_lower95: float | None
    effective_accepted: float
    coverage: float
    band_rows: int
    band_confidence: float
    band_accuracy: float
    extra: Mapping[str, float] = field(default_factory=dict)  # metrics that the caller added

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, unless the threshold is infinite; NaN is None."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Reliability:
        """Return what `to_dict` wrote; ValueError: another key, or a value of the wrong kind."""
        kinds = {f.name: str(f.type) for f in fields(cls)}
        d = {"extra": {}, **d} if isinstance(d, Mapping) else d
        check_keys("a reliability", d, kinds)
        return cls(**{key: _restore(kinds[key], value) for key, value in d.items()})

    def table(self, name: str = "confidence") -> str:
        """Return the plain text table of `Comparison.table` with one row."""
        return Comparison(((name, self),)).table()


def _restore(kind: str, value: Any) -> Any:
    if kind.startswith("float"):
        if value is None:
            return None if kind == "float | None" else math.nan
        return as_number("a value of a reliability", value)
    if kind == "Interval" and isinstance(value, (list, tuple)) and len(value) == 2:
        return tuple(_restore("float", v) for v in value)
    if kind.startswith("Mapping") and isinstance(value, Mapping):
        return {name: _restore("float", v) for name, v in value.items()}
    if kind == "int" and type(value) is int:
        return value
    expected = {"Interval": "low and high", "int": "a whole number"}.get(kind, "extra metrics")
    raise ValueError(f"not a reliability: expected {expected}, got {value!r:.80}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several confidences, measured on the same rows: (name, Reliability) each."""

    rows: tuple[tuple[str, Reliability], ...]

    def __getitem__(self, name: str) -> Reliability:
        """Return the reliability of that name; KeyError if there is none."""
        return dict(self.rows)[name]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: name to `Reliability.to_dict`, in order."""
        return {name: result.to_dict() for name, result in self.rows}

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as text: a header, then one row per confidence.

        `at >= t` is the number of queries that reach the threshold; `right`, those of them whose
        top passage is right; `lower bound`, the 95% lower bound of that share, by group; a dash: no
        value.
        """
        threshold = self.rows[0][1].threshold if self.rows else 0.7
        at = f"at >= {threshold:g}"
        extra = tuple(self.rows[0][1].extra) if self.rows else ()
        head = ("", "AUROC", "Brier", "smECE [95%]", at, "right", "lower bound", *extra)
        return [head, *((name, *_cells(result)) for name, result in self.rows)]

    def table(self) -> str:
        """Return `cells` in columns, at most 100 wide; a name that is too long is cut."""
        return aligned(self.cells())


def _cells(r: Reliability) -> tuple[str, ...]:
    (low, high), share, bound = r.smece_interval, r.accuracy_accepted, r.accuracy_accepted_lower95
    return (
        DASH if math.isnan(r.auroc) else f"{r.auroc:.3f}",
        f"{r.brier:.4f}",
        f"{r.smece:.3f} [{DASH if math.isnan(low) else f'{low:.3f}, {high:.3f}'}]",
        str(r.accepted) if r.accepted else DASH,
        DASH if share is None else f"{r.right_accepted} ({100 * share:.1f}%)",
        DASH if bound is None else f"{100 * bound:.1f}%",
        *(f"{value:.3f}" for value in r.extra.values()),
    )


def measure(
    y: ArrayLike,
    p: ArrayLike,
    *,
    groups: Groups = None,
    units: Groups = None,
    threshold: float = 0.7,
    draws: int = 500,
    random_state: int = 0,
    extra: Mapping[str, Metric] = MappingProxyType({}),
) -> Reliability:
    """Return every measurement of confidences p (n,) in [0, 1] against labels y (n,) of 0 and 1.

    `groups` (n,) are independent, the rows within one need not be. `units` (n,) is what a random
    sample drew, for the bound of `accuracy_accepted`; None: the groups. `draws` is the number of
    random draws in the interval of smECE. `extra` holds metrics of your own by name: functions of
    labels (n,) and confidences (n,) to a float.
    """
    labels, values = check_y_p(y, p)
    threshold = as_number("threshold", threshold)
    if math.isnan(threshold):
        raise ValueError("threshold must be a number, got NaN")
    groups = group_codes(groups, len(labels))
    drawn = groups if units is None else units
    (accepted,) = at_thresholds(labels, values, [threshold], groups=drawn)
    n, right = accepted.rows, accepted.right
    base = np.full(len(labels), labels.mean())
    floor, floor95 = errors.smece_floor(values, groups=groups, y=labels, random_state=random_state)
    miscalibration, discrimination, _ = scores.corp(labels, values)
    near, promised, band_right = scores.band(labels, values, threshold)
    return Reliability(
        n=len(labels),
        base_accuracy=float(labels.mean()),
        auroc=scores.auroc(labels, values),
        auroc_interval=intervals.auroc_interval(labels, values, groups),
        brier=scores.brier(labels, values),
        brier_interval=scores.brier_interval(labels, values, groups),
        brier_of_base_rate=scores.brier(labels, base),
        miscalibration=miscalibration,
        discrimination=discrimination,
        log_loss=scores.log_loss(labels, values),
        log_loss_of_base_rate=scores.log_loss(labels, base),
        smece=errors.smece(labels, values),
        smece_interval=errors.smece_interval(
            labels, values, groups, draws=draws, random_state=random_state
        ),
        smece_floor=floor,
        smece_floor95=floor95,
        ece_debiased=errors.ece_debiased(labels, values),
        aurc=scores.aurc(labels, values),
        augrc=scores.augrc(labels, values),
        naurc=scores.naurc(labels, values),
        nauc=scores.nauc(labels, values),
        threshold=threshold,
        accepted=n,
        right_accepted=right,
        accuracy_accepted=right / n if n else None,
        accuracy_accepted_lower95=accepted.lower95 if n else None,
        effective_accepted=accepted.effective,
        coverage=n / len(labels),
        band_rows=near,
        band_confidence=promised,
        band_accuracy=band_right,
        extra={name: float(metric(labels, values)) for name, metric in extra.items()},
    )


def comparison(
    rows: Mapping[str, ArrayLike], y: ArrayLike, *, groups: Groups = None, **options: Any
) -> Comparison:
    """Return `measure`, with its options and errors, of each confidence (name to p (n,))."""
    results, number = [], group_codes(groups, np.size(y))
    for name, p in rows.items():
        try:
            results.append((name, measure(y, p, groups=number, **options)))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return Comparison(tuple(results))


WIDTH = 100  # characters of a line, at most


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length, one line each: the first column to the left, the others to the right.

    Names in the first column that do not fit into `WIDTH` characters are cut.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first = max(1, min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)))
    lines = []
    for name, *cells in rows:
        shown = name if len(name) <= first else f"{name[: first - 1]}…"
        right = [f"{cell:>{w}}" for cell, w in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([f"{shown:<{first}}", *right]).rstrip())
    return "\n".join(lines)

"""Two pictures of what goes into a confidence: the features of one query, and all features.

As in `confidence`: arrays in, a matplotlib `Figure` with its caption out, without global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from calibration.arrays import logit, sigmoid
from calibration.plots import style

STRONGEST = 10  # features with a bar of their own
NAMES = 0.43  # share of a picture's width that the names of its rows take
LONGEST = 47  # characters per line of these names
CHANCES = (0.5, 0.25, 0.75, 0.1, 0.9, 0.05, 0.95, 0.01, 0.99, 0.001, 0.999)


def feature_effects(
    names: Sequence[str],
    contributions: ArrayLike,
    *,
    base: float,
    confidence: float,
    title: str = "Why this confidence",
    below: str = "",
) -> Figure:
    """Return how contributions (d,) of features lead from `base` log odds to those of one query.

    The `STRONGEST` have a row each, the others share one. If the sum is not the log odds of
    `confidence`, because a second stage transforms the score, the picture says so.
    """
    steps = np.asarray(contributions, dtype=np.float64)
    if steps.shape != (n := len(names),) or not n:
        raise ValueError(f"expected one contribution per name, got {steps.shape} for {n} names")
    order = np.argsort(-np.abs(steps), kind="stable")
    rows = [(names[i], float(steps[i])) for i in order[:STRONGEST]]
    if others := len(order) - len(rows):
        rows.append((f"{others} others together", float(steps[order[STRONGEST:]].sum())))
    ends = base + np.cumsum([0.0, *(step for _, step in rows)])
    exact = bool(abs(float(sigmoid(ends[-1])) - confidence) < 1e-6)
    start = f"a usual query ({float(sigmoid(base)):.2f})" if exact else "a usual query"
    labels = [start, *(name for name, _ in rows), f"this query ({confidence:.2f})"]
    wrapped = [[part for line in x.split("\n") for part in wrap(line, LONGEST)] for x in labels]
    beside = [style.literal("\n".join(lines)) for lines in wrapped]
    figure, axes = _named_rows(beside, NAMES, title, below, top=1.2, foot=1.3)
    span = float(np.ptp(ends)) or 1.0
    low, high = float(ends.min()) - 0.2 * span, float(ends.max()) + 0.2 * span
    axes.set_xlim(low, high)
    for i, (_, step) in enumerate(rows, start=1):  # each from where the one above it ended
        colour, side, away = (
            (style.BLUE, "left", 0.015) if step >= 0 else (style.AMBER, "right", -0.015)
        )
        axes.barh(i, step, left=ends[i - 1], height=0.62, color=colour, zorder=3)
        number = axes.text(ends[i] + away * span, i, f"{step:+.2f}", ha=side, va="center", zorder=5)
        number.set(fontsize=style.SMALL, color=colour, bbox={"color": "white", "pad": 0.5})
    for i, end in enumerate(ends):  # from each row to the next
        axes.plot([end, end], [i, i + 1], color=style.SOFT, lw=0.8, zorder=2)
    axes.plot([ends[0], ends[-1]], [0, len(ends)], "o", color=style.INK, ms=7, zorder=4)
    axes.set_xlabel("log odds of being right" if exact else "score of the first stage")
    bent = f" A second stage turns the score into the confidence, {confidence:.2f}."
    if exact:
        _chances(axes, low, high)
    style.caption(
        figure,
        "How to read it: start at the top, with a query whose features are all usual. Each bar is "
        "what one feature adds (blue, to the right) or takes away (amber, to the left), from where "
        "the one above it ended. The last dot is this query." + ("" if exact else bent),
    )
    return figure


def _named_rows(
    labels: Sequence[str], left: float, title: str, below: str, *, top: float, foot: float
) -> tuple[Figure, Axes]:
    """A figure and its axes: a row each, labels in the `left` share, `top` and `foot` in inches."""
    lines = max(label.count("\n") + 1 for label in labels)
    height = max(0.42, 0.1 + 0.16 * lines) * len(labels) + top + foot
    figure = style.sheet(7.2, height, title, below)
    axes = style.panel(figure, (left, foot / height, 0.96 - left, 1 - (foot + top) / height))
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=style.INK, labelsize=style.SMALL)
    return figure, axes


def _chances(axes: Axes, low: float, high: float) -> None:
    """Label the upper edge with as many probabilities as there is room for."""
    shown: dict[float, str] = {}
    for chance in CHANCES:
        place = float(logit(chance))
        apart = all(abs(place - other) > 0.12 * (high - low) for other in shown)
        if low <= place <= high and apart:
            shown[place] = f"{chance:g}"
    upper = axes.secondary_xaxis("top")
    upper.set_xticks(list(shown), list(shown.values()))
    upper.spines["top"].set_visible(False)
    upper.tick_params(colors=style.SOFT, labelsize=9, length=0, pad=2)
    upper.set_xlabel("confidence", color=style.INK, fontsize=9.5)


def feature_groups(
    names: Sequence[str],
    saved: ArrayLike,
    intervals: Sequence[tuple[float, float]],
    *,
    notes: Sequence[str] = (),
    below: str = "",
) -> Figure:
    """Return one bar per row: nats of log loss saved (s,) against the base rate, with its interval.

    `notes` stand below the names, one per row. An interval of NaN is not drawn.
    """
    nats = np.asarray(saved, dtype=np.float64)
    lengths = (len(names), len(nats), len(intervals))
    if not len(names) or len(set(lengths)) > 1:
        raise ValueError(f"expected a number and an interval a name, got {lengths}")
    beside = [f"{n}\n{note}" for n, note in zip(names, notes, strict=True)] if notes else names
    rows, title = [style.literal(label) for label in beside], "What each group of features adds"
    figure, axes = _named_rows(rows, 0.34, title, below, top=0.85, foot=1.4)
    axes.barh(range(len(names)), nats, height=0.62, color=style.BLUE, alpha=0.75, zorder=2)
    for i, (low, high) in enumerate(intervals):
        axes.plot([low, high], [i, i], color=style.INK, lw=1.4, zorder=3)
    axes.axvline(0, color=style.SOFT, lw=1.0, zorder=4)
    axes.set_xlabel("log loss saved against the base rate, nats a query")
    style.caption(
        figure,
        "How to read it: from top to bottom the confidence is refitted with one group of features "
        "more, and measured on the same queries. A longer bar knows more; 0 knows only how many "
        "are right in all. Lines are 95% intervals: two that overlap may still differ, since the "
        "queries are the same.",
    )
    return figure

"""Three pictures of a confidence and its labels: reliability, risk and coverage, and histogram.

Arrays in, a matplotlib `Figure` with a caption that says how to read it out. There is no pyplot and
no global state, so it works on any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from calibration.arrays import Floats, check_y_p
from calibration.metrics.calibration_error import smece
from calibration.metrics.scores import auroc, brier, expected_errors
from calibration.plots import style
from calibration.reliability import Bin
from calibration.thresholds import binomial_interval

STYLES = ("-", "--", "-.", ":")


def reliability_diagram(
    y: ArrayLike,
    p: ArrayLike,
    bins: Sequence[Bin],
    *,
    title: str = "Reliability",
    threshold: float = 0.7,
) -> Figure:
    """Return the reliability diagram of confidences p (n,) against labels y (n,) of 0 and 1.

    Dots are the `bins`, `reliability_bins` of y and p, with 95% binomial bars, exact for
    independent rows. The band is where 95% of the dots fall if p is exactly calibrated.
    """
    labels, values = check_y_p(y, p)
    figures = [f"{metric(labels, values):.3f}" for metric in (smece, brier, auroc)]
    below = "{} queries · smECE {} · Brier {} · AUROC {}".format(f"{len(values):,}", *figures)
    figure = style.sheet(6.4, 8.2, title, below)
    main = style.panel(figure, (style.LEFT, 0.315, style.WIDE, 0.555))
    strip = style.panel(figure, (style.LEFT, 0.185, style.WIDE, 0.105), sharex=main)
    for axes in (main, strip):
        axes.axvline(threshold, color=style.AMBER, lw=1.1, ls=style.DASHED, zorder=1)
        axes.yaxis.set_label_coords(-0.085, 0.5)
    main.plot([0, 1], [0, 1], color=style.SOFT, lw=1.0, zorder=2)
    _dots(main, bins)
    main.set(xlim=(-0.015, 1.015), ylim=(-0.015, 1.015), ylabel="share that is right")
    main.tick_params(labelbottom=False)
    edges = np.linspace(0, 1, 41).tolist()
    strip.hist(values, bins=edges, color=style.BLUE, alpha=0.75, rwidth=0.88)
    strip.set(xlabel="confidence", ylabel="queries")
    strip.locator_params(axis="y", nbins=3)
    at = f"threshold {threshold:g}"
    handles = [
        Line2D([], [], marker="o", color=style.BLUE, mec="white", ms=7, label="measured, 95%"),
        Line2D([], [], color=style.SOFT, lw=1.0, label="exact"),
        Line2D([], [], color=style.BAND, lw=8, label="chance alone"),
        Line2D([], [], color=style.AMBER, lw=1.1, ls=style.DASHED, label=at),
    ]
    look = {"ncols": 4, "handlelength": 1.8, "columnspacing": 1.6, **style.LEGEND}
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(0.095, 0.892), **look)
    style.caption(
        figure,
        "How to read it: each dot is a group of queries with similar confidence. On the diagonal, "
        "confidence is the share that is right; below it, too much is promised. Dots within the "
        "band cannot be told from exact calibration. Below: how often each confidence is given.",
    )
    return figure


def _dots(axes: Axes, bins: Sequence[Bin]) -> None:
    """Draw the share that is right in each bin, with its exact bounds, on top of the band."""
    centre, share, count, low, high = map(list, zip(*bins, strict=True))
    if len(centre) > 1:
        axes.fill_between(centre, low, high, color=style.BAND, lw=0, zorder=1)
    else:
        axes.plot(centre * 2, [*low, *high], color=style.BAND, lw=14, solid_capstyle="butt")
    hits = [round(s * n) for s, n in zip(share, count, strict=True)]
    bounds = [binomial_interval(h, n) for h, n in zip(hits, count, strict=True)]
    axes.vlines(centre, *zip(*bounds, strict=True), color=style.BLUE, lw=1.3, alpha=0.55, zorder=3)
    axes.plot(centre, share, "o", color=style.BLUE, ms=6.5, mec="white", mew=0.9, zorder=4)


def risk_coverage_curve(
    y: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    threshold: float = 0.7,
    certified: Mapping[str, float] | None = None,
) -> Figure:
    """Return accuracy against coverage for each confidence (name to p (n,)) on labels y (n,).

    The first curve is thick. A dot marks the rows with p >= threshold, a diamond those that reach
    the threshold of this name in `certified`. Curves start at 10 accepted rows (1 if n < 20). Ties
    are averaged over, so a run of equal p is a bend, not a jump.
    """
    if not curves:
        raise ValueError("expected at least one way of being confident, got none")
    checked = {name: check_y_p(y, p) for name, p in curves.items()}
    promised = {n: t for n, t in (certified or {}).items() if (checked[n][1] >= t).any()}
    labels = next(iter(checked.values()))[0]
    n, base = len(labels), float(labels.mean())
    rows = len(checked) + len(promised) + 3
    foot = 1.35 + 0.22 * ((rows + 1) // 2)
    height = 5.2 + foot
    below = f"{n:,} queries · {base:.1%} right in all"
    figure = style.sheet(7.2, height, "Accuracy against coverage", below)
    box = (style.LEFT, foot / height, style.WIDE, (height - foot - 0.85) / height)
    axes = style.panel(figure, box)
    accepted = np.arange(1, n + 1)
    oracle = np.minimum(1.0, labels.sum() / accepted)
    promise = f"threshold {threshold:g}: no dot should lie below"
    knows = "oracle: knows every answer"
    handles = [
        *axes.plot(accepted / n, oracle, color=style.LINE, lw=2.2, label=knows),
        axes.axhline(base, color=style.SOFT, lw=1.0, ls=":", label="base rate: no selection"),
        axes.axhline(threshold, color=style.AMBER, lw=1.1, ls=style.DASHED, label=promise),
    ]
    lowest = min(base, threshold)
    earlier: list[Floats] = []
    for i, (name, (_, values)) in enumerate(checked.items()):
        colour = style.COLOURS[i % len(style.COLOURS)]
        dash = STYLES[i // len(style.COLOURS) % len(STYLES)]
        accuracy = _curve(axes, labels, values, earlier, colour, dash)
        short = name if len(name) <= 40 else name[:39].rstrip() + "…"
        dots = [_point(axes, labels, values, threshold, "o", colour)]
        label = short if dots[0] else f"{short} (never reaches {threshold:g})"
        handles.append(_entry(label, colour, dash, "o" if dots[0] else ""))
        if name in promised:
            dots.append(_point(axes, labels, values, promised[name], "D", colour))
            label = f"certified threshold {promised[name]:.3f}"
            handles.append(_entry(label, colour, "", "D"))
        lowest = min([lowest, float(accuracy.min()), *[right for dot in dots for right in dot]])
    axes.set(xlim=(0, 1.0), ylim=(max(-0.015, lowest - 0.05), 1.015))
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("coverage: share of the queries accepted")
    axes.set_ylabel("share of the accepted that is right")
    style.legend_below(figure, handles[3:] + handles[:3], foot, ncols=2, columnspacing=2.0)
    style.caption(
        figure,
        "How to read it: accept the most confident queries first, and follow a curve from left to "
        "right. Higher is a better order. The dot is where the threshold itself puts you: a true "
        "confidence lands at or above the dashed line, and the further right, the more it accepts."
        + (" The diamond is where the certified threshold puts you." if promised else ""),
    )
    return figure


def _curve(
    axes: Axes, labels: Floats, values: Floats, earlier: list[Floats], colour: str, dash: str
) -> Floats:
    """Draw one curve of accuracy against coverage, append it to `earlier`, and return it."""
    n = len(labels)
    accepted = np.arange(10 if n >= 20 else 1, n + 1)
    accuracy = 1 - expected_errors(labels, values)[accepted - 1] / accepted
    hidden = any(np.allclose(accuracy, other) for other in earlier)  # then it is a pale, wide line
    width, alpha = (4.5, 0.45) if hidden else (1.2 if earlier else 2.6, 1.0)
    above = 3 if hidden or earlier else 5
    axes.plot(accepted / n, accuracy, color=colour, ls=dash, lw=width, alpha=alpha, zorder=above)
    earlier.append(accuracy)
    return accuracy


def _point(
    axes: Axes, labels: Floats, values: Floats, least: float, marker: str, colour: str
) -> list[float]:
    """Mark the rows with p >= least, and return the share that is right; without rows, no mark."""
    reached = values >= least
    if not reached.any():
        return []
    x, right = float(reached.mean()), float(labels[reached].mean())
    axes.plot(x, right, marker, color=colour, ms=8.5, mec="white", mew=1.2, zorder=6, clip_on=False)
    return [right]


def _entry(label: str, colour: str, dash: str, marker: str) -> Line2D:
    look: dict[str, Any] = {"color": colour, "ls": dash, "marker": marker, "label": label}
    return Line2D([], [], lw=1.7, ms=7, mec="white", **look)


def confidence_histogram(y: ArrayLike, p: ArrayLike, *, threshold: float = 0.7) -> Figure:
    """Return histograms of the confidences p (n,) of the right rows (y = 1) and of the wrong ones.

    Bars are shares of the right rows (above) and of the wrong ones (below), in 20 bins of equal
    width.
    """
    labels, values = check_y_p(y, p)
    edges = np.linspace(0, 1, 21)
    below = f"{len(values):,} queries, 20 bins each"
    figure = style.sheet(6.4, 6.0, "Confidence of right and of wrong answers", below)
    upper = style.panel(figure, (style.LEFT, 0.565, style.WIDE, 0.265))
    lower = style.panel(figure, (style.LEFT, 0.21, style.WIDE, 0.265), sharey=upper)
    for axes, name, colour, confidences in (
        (upper, "right", style.BLUE, values[labels == 1]),
        (lower, "wrong", style.AMBER, values[labels == 0]),
    ):
        shares = np.histogram(confidences, edges)[0] / max(1, len(confidences))
        axes.bar(edges[:-1] + 0.025, shares, width=0.044, color=colour, alpha=0.8)
        axes.axvline(threshold, color=style.INK, lw=1.1, ls=style.DASHED)
        reach = int((confidences >= threshold).sum())
        share = f" ({reach / len(confidences):.0%})" if len(confidences) else ""
        title = f"{len(confidences):,} {name}, of which {reach:,} reach {threshold:g}{share}"
        axes.set_title(title, loc="left", fontsize=9.5, color=colour, fontweight="bold", pad=6)
        axes.set(xlim=(0, 1), ylabel=f"share of the {name}")
        axes.yaxis.set_label_coords(-0.085, 0.5)
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.locator_params(axis="y", nbins=4)
    upper.tick_params(labelbottom=False)
    lower.set_xlabel("confidence")
    style.caption(
        figure,
        "How to read it: the further the upper bars lie to the right and the lower ones to the "
        "left, the better right and wrong are told apart. Beyond the dashed line answers are "
        "accepted: of the right ones as many as possible should be there, of the wrong ones few.",
    )
    return figure

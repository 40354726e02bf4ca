"""Pictures of confidences and labels, and of the features that go into a confidence.

Arrays in, a matplotlib `Figure` with a caption that says how to read it out; `draw` makes it a PNG.
There is no pyplot and no global state, so it works on any thread.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats, check_y_p, checked, logit, sigmoid
from calibration.metrics.calibration_error import smece
from calibration.metrics.scores import auroc, brier, expected_errors
from calibration.reliability import Bin
from calibration.thresholds import binomial_interval

INK, SOFT, LINE = "#1f2933", "#66727f", "#c8d0d8"
BLUE, BAND, AMBER = "#1f5f99", "#dbe7f2", "#c9731a"
COLOURS = (
    *("#1f5f99", "#c9731a", "#2f8f6b", "#a23b72", "#7a5cc0"),
    *("#8c6d1f", "#3f3f46", "#1295a8", "#cf4f5f"),
)
DASHED = (0, (4, 3))
LEFT, WIDE = 0.11, 0.85
SMALL = 8.5  # size of captions and legends, in points

LEGEND: Mapping[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": INK}
LINES = 1.35  # line height of a caption, as a multiple of its font size

DPI = 130
MARGIN = 12  # pixels of white below a picture without its caption
STYLES = ("-", "--", "-.", ":")
STRONGEST = 10  # features with a bar of their own
NAMES = 0.43  # share of a picture's width that the names of its rows take
LONGEST = 47  # characters per line of these names
CHANCES = (0.5, 0.25, 0.75, 0.1, 0.9, 0.05, 0.95, 0.01, 0.99, 0.001, 0.999)


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its caption and one without, its title, and the caption: how to read it."""

    captioned: bytes
    plain: bytes
    title: str
    caption: str


@checked
def reliability_diagram(
    y: Floats, p: Floats, bins: Sequence[Bin], *, title: str = "Reliability", threshold: float = 0.7
) -> Figure:
    """Return the reliability diagram of confidences p (n,) against labels y (n,) of 0 and 1.

    Dots are the `bins`, `reliability_bins` of y and p, with 95% binomial bars, exact for
    independent rows. The band is where 95% of the dots fall if p is exactly calibrated.
    """
    figures = [f"{metric(y, p):.3f}" for metric in (smece, brier, auroc)]
    below = "{} queries · smECE {} · Brier {} · AUROC {}".format(f"{len(p):,}", *figures)
    figure = sheet(6.4, 8.2, title, below)
    main = panel(figure, (LEFT, 0.315, WIDE, 0.555))
    strip = panel(figure, (LEFT, 0.185, WIDE, 0.105), sharex=main)
    for axes in (main, strip):
        axes.axvline(threshold, color=AMBER, lw=1.1, ls=DASHED, zorder=1)
        axes.yaxis.set_label_coords(-0.085, 0.5)
    main.plot([0, 1], [0, 1], color=SOFT, lw=1.0, zorder=2)
    _dots(main, bins)
    main.set(xlim=(-0.015, 1.015), ylim=(-0.015, 1.015), ylabel="share that is right")
    main.tick_params(labelbottom=False)
    edges = np.linspace(0, 1, 41).tolist()
    strip.hist(p, bins=edges, color=BLUE, alpha=0.75, rwidth=0.88)
    strip.set(xlabel="confidence", ylabel="queries")
    strip.locator_params(axis="y", nbins=3)
    at = f"threshold {threshold:g}"
    handles = [
        Line2D([], [], marker="o", color=BLUE, mec="white", ms=7, label="measured, 95%"),
        Line2D([], [], color=SOFT, lw=1.0, label="exact"),
        Line2D([], [], color=BAND, lw=8, label="chance alone"),
        Line2D([], [], color=AMBER, lw=1.1, ls=DASHED, label=at),
    ]
    look = {"ncols": 4, "handlelength": 1.8, "columnspacing": 1.6, **LEGEND}
    figure.legend(handles=handles, loc="center left", bbox_to_anchor=(0.095, 0.892), **look)
    caption(
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
        axes.fill_between(centre, low, high, color=BAND, lw=0, zorder=1)
    else:
        axes.plot(centre * 2, [*low, *high], color=BAND, lw=14, solid_capstyle="butt")
    hits = [round(s * n) for s, n in zip(share, count, strict=True)]
    bounds = [binomial_interval(h, n) for h, n in zip(hits, count, strict=True)]
    axes.vlines(centre, *zip(*bounds, strict=True), color=BLUE, lw=1.3, alpha=0.55, zorder=3)
    axes.plot(centre, share, "o", color=BLUE, ms=6.5, mec="white", mew=0.9, zorder=4)


def risk_coverage_curve(
    y: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    threshold: float = 0.7,
    certified: Mapping[str, float] | None = None,
) -> Figure:
    """Return accuracy against coverage for each confidence (name to p (n,)) on labels y (n,).

    The first curve is thick. A dot marks the rows with p >= threshold, a diamond those that reach
    the threshold of this name in `certified`. Curves start at 10 accepted rows (1 if n < 20).
    """
    if not curves:
        raise ValueError("expected at least one way of being confident, got none")
    given = {name: check_y_p(y, p) for name, p in curves.items()}
    errors = [expected_errors(*each) for each in given.values()]
    promised = {n: t for n, t in (certified or {}).items() if (given[n][1] >= t).any()}
    labels = next(iter(given.values()))[0]
    n, base = len(labels), float(labels.mean())
    rows = len(given) + len(promised) + 3
    foot = 1.35 + 0.22 * ((rows + 1) // 2)
    height = 5.2 + foot
    below = f"{n:,} queries · {base:.1%} right in all"
    figure = sheet(7.2, height, "Accuracy against coverage", below)
    box = (LEFT, foot / height, WIDE, (height - foot - 0.85) / height)
    axes = panel(figure, box)
    accepted = np.arange(1, n + 1)
    oracle = np.minimum(1.0, labels.sum() / accepted)
    promise = f"threshold {threshold:g}: no dot should lie below"
    knows = "oracle: knows every answer"
    handles = [
        *axes.plot(accepted / n, oracle, color=LINE, lw=2.2, label=knows),
        axes.axhline(base, color=SOFT, lw=1.0, ls=":", label="base rate: no selection"),
        axes.axhline(threshold, color=AMBER, lw=1.1, ls=DASHED, label=promise),
    ]
    lowest = min(base, threshold)
    earlier: list[Floats] = []
    for i, (name, (_, values)) in enumerate(given.items()):
        colour = COLOURS[i % len(COLOURS)]
        dash = STYLES[i // len(COLOURS) % len(STYLES)]
        accuracy = _curve(axes, errors[i], earlier, colour, dash)
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
    look = {"ncols": 2, "columnspacing": 2.0, "borderaxespad": 0.0, **LEGEND}
    place, entries = (0.095, (foot - 0.52) / height), handles[3:] + handles[:3]
    legend = figure.legend(handles=entries, loc="upper left", bbox_to_anchor=place, **look)
    for text in legend.get_texts():
        text.set_parse_math(False)
    caption(
        figure,
        "How to read it: accept the most confident queries first, and follow a curve from left to "
        "right. Higher is a better order. The dot is where the threshold itself puts you: a true "
        "confidence lands at or above the dashed line, and the further right, the more it accepts."
        + (" The diamond is where the certified threshold puts you." if promised else ""),
    )
    return figure


def _curve(axes: Axes, errors: Floats, earlier: list[Floats], colour: str, dash: str) -> Floats:
    """Draw one curve of accuracy against coverage, append it to `earlier`, and return it."""
    n = len(errors)
    accepted = np.arange(10 if n >= 20 else 1, n + 1)
    accuracy = 1 - errors[accepted - 1] / accepted
    hidden = any(np.allclose(accuracy, other) for other in earlier)  # then it is a pale, wide line
    width, alpha = (4.5, 0.45) if hidden else (1.2 if earlier else 2.6, 1.0)
    above = 3 if hidden or earlier else 5
    axes.plot(accepted / n, accuracy, color=colour, ls=dash, lw=width, alpha=alpha, zorder=above)
    earlier.append(accuracy)
    return accuracy


def _point(axes: Axes, y: Floats, p: Floats, least: float, marker: str, colour: str) -> list[float]:
    """Mark the rows with p >= least, and return the share that is right; without rows, no mark."""
    reached = p >= least
    if not reached.any():
        return []
    x, right = float(reached.mean()), float(y[reached].mean())
    axes.plot(x, right, marker, color=colour, ms=8.5, mec="white", mew=1.2, zorder=6, clip_on=False)
    return [right]


def _entry(label: str, colour: str, dash: str, marker: str) -> Line2D:
    look: dict[str, Any] = {"color": colour, "ls": dash, "marker": marker, "label": label}
    return Line2D([], [], lw=1.7, ms=7, mec="white", **look)


@checked
def confidence_histogram(y: Floats, p: Floats, *, threshold: float = 0.7) -> Figure:
    """Return histograms of the confidences p (n,) of the right rows (y = 1) and of the wrong ones.

    Bars are shares of the rows of each, in 20 bins of equal width.
    """
    edges = np.linspace(0, 1, 21)
    below = f"{len(p):,} queries, 20 bins each"
    figure = sheet(6.4, 6.0, "Confidence of right and of wrong answers", below)
    upper = panel(figure, (LEFT, 0.565, WIDE, 0.265))
    lower = panel(figure, (LEFT, 0.21, WIDE, 0.265), sharey=upper)
    for axes, name, colour, confidences in (
        (upper, "right", BLUE, p[y == 1]),
        (lower, "wrong", AMBER, p[y == 0]),
    ):
        shares = np.histogram(confidences, edges)[0] / max(1, len(confidences))
        axes.bar(edges[:-1] + 0.025, shares, width=0.044, color=colour, alpha=0.8)
        axes.axvline(threshold, color=INK, lw=1.1, ls=DASHED)
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
    caption(
        figure,
        "How to read it: the further the upper bars lie to the right and the lower ones to the "
        "left, the better right and wrong are told apart. Beyond the dashed line answers are "
        "accepted: of the right ones as many as possible should be there, of the wrong ones few.",
    )
    return figure


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
    rows_of = [[p for part in x.split("\n") for p in textwrap.wrap(part, LONGEST)] for x in labels]
    beside = [literal("\n".join(lines)) for lines in rows_of]
    figure, axes = _named_rows(beside, NAMES, title, below, top=1.2, foot=1.3)
    span = float(np.ptp(ends)) or 1.0
    low, high = float(ends.min()) - 0.2 * span, float(ends.max()) + 0.2 * span
    axes.set_xlim(low, high)
    for i, (_, step) in enumerate(rows, start=1):  # each from where the one above it ended
        colour, side, away = (BLUE, "left", 0.015) if step >= 0 else (AMBER, "right", -0.015)
        axes.barh(i, step, left=ends[i - 1], height=0.62, color=colour, zorder=3)
        number = axes.text(ends[i] + away * span, i, f"{step:+.2f}", ha=side, va="center", zorder=5)
        number.set(fontsize=SMALL, color=colour, bbox={"color": "white", "pad": 0.5})
    for i, end in enumerate(ends):  # from each row to the next
        axes.plot([end, end], [i, i + 1], color=SOFT, lw=0.8, zorder=2)
    axes.plot([ends[0], ends[-1]], [0, len(ends)], "o", color=INK, ms=7, zorder=4)
    axes.set_xlabel("log odds of being right" if exact else "score of the first stage")
    bent = f" A second stage turns the score into the confidence, {confidence:.2f}."
    if exact:
        _chances(axes, low, high)
    caption(
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
    figure = sheet(7.2, height, title, below)
    axes = panel(figure, (left, foot / height, 0.96 - left, 1 - (foot + top) / height))
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=SMALL)
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
    upper.tick_params(colors=SOFT, labelsize=9, length=0, pad=2)
    upper.set_xlabel("confidence", color=INK, fontsize=9.5)


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
    rows, title = [literal(label) for label in beside], "What each group of features adds"
    figure, axes = _named_rows(rows, 0.34, title, below, top=0.85, foot=1.4)
    axes.barh(range(len(names)), nats, height=0.62, color=BLUE, alpha=0.75, zorder=2)
    for i, (low, high) in enumerate(intervals):
        axes.plot([low, high], [i, i], color=INK, lw=1.4, zorder=3)
    axes.axvline(0, color=SOFT, lw=1.0, zorder=4)
    axes.set_xlabel("log loss saved against the base rate, nats a query")
    caption(
        figure,
        "How to read it: from top to bottom the confidence is refitted with one group of features "
        "more, and measured on the same queries. A longer bar knows more; 0 knows only how many "
        "are right in all. Lines are 95% intervals: two that overlap may still differ, since the "
        "queries are the same.",
    )
    return figure


def panel(figure: Figure, box: tuple[float, float, float, float], **options: Any) -> Axes:
    """Add axes in this part of a figure, with a pale grid, two thin spines, and no ticks."""
    axes = figure.add_axes(box, **options)
    axes.grid(color="#edf0f3", lw=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(colors=SOFT, labelsize=9, length=0, pad=5)
    return axes


def sheet(width: float, height: float, title: str, below: str) -> Figure:
    """A white figure with a title, and a line below it, at the top left."""
    figure = Figure(figsize=(width, height), facecolor="white")
    first = figure.text(LEFT, 1 - 0.36 / height, title, fontsize=14, fontweight="bold", color=INK)
    first.set_gid("title")
    second = figure.text(LEFT, 1 - 0.62 / height, below, fontsize=9.5, color=SOFT)
    for text in (first, second):
        text.set_parse_math(False)
    return figure


def literal(text: str) -> str:
    """The text as Matplotlib shows it unchanged: a name with dollar signs is no formula."""
    return text.replace("$", r"\$")


def caption(figure: Figure, text: str) -> None:
    """Write how to read the picture at the bottom."""
    width, height = figure.get_size_inches()
    lines = "\n".join(textwrap.wrap(text, int(width * 14.2)))
    look: dict[str, Any] = {"fontsize": SMALL, "color": SOFT, "va": "bottom", "linespacing": LINES}
    figure.text(LEFT, 0.16 / height, lines, gid="caption", **look)


def draw(figure: Figure) -> Picture:
    """Return a figure that has a heading and a caption as a picture.

    It is rendered once: the picture without the caption is the part above the caption.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    texts = {str(text.get_gid()): text for text in figure.texts}
    above = pixels[: len(pixels) - int(texts["caption"].get_window_extent().y1)]
    inked = np.flatnonzero((above[..., :3] != 255).any(axis=(1, 2)))
    return Picture(
        captioned=_png(pixels),
        plain=_png(above[: inked[-1] + MARGIN]),
        title=texts["title"].get_text(),
        caption=texts["caption"].get_text().replace("\n", " "),
    )


def _png(pixels: NDArray[np.uint8]) -> bytes:
    from matplotlib.image import imsave

    file = BytesIO()
    imsave(file, pixels, format="png", dpi=DPI)
    return file.getvalue()

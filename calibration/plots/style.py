"""The look that all pictures share: palette, axes, heading, caption, and a figure as PNG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG with its caption and one without, its title, and the caption: how to read it."""

    captioned: bytes
    plain: bytes
    title: str
    caption: str


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


def legend_below(
    figure: Figure, handles: Sequence[Artist], foot: float, *, ncols: int, columnspacing: float
) -> None:
    """Write the legend under the axes, which begin `foot` inches above the bottom."""
    place = (0.095, (foot - 0.52) / figure.get_size_inches()[1])
    look: dict[str, Any] = {"ncols": ncols, "columnspacing": columnspacing, **LEGEND}
    corner: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": place, "borderaxespad": 0.0}
    legend = figure.legend(handles=handles, **corner, **look)
    for text in legend.get_texts():
        text.set_parse_math(False)


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

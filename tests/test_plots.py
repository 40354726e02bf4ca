"""Pictures: what they show is read off the figure, and no text covers another."""

from __future__ import annotations

import itertools
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calibration.plots import bins, reliability_diagram, risk_coverage_curve

RNG = np.random.default_rng(0)
P = RNG.beta(2, 2, 500)
Y = (RNG.random(500) < P).astype(int)

FIGURES = {
    "reliability": lambda: reliability_diagram(Y, P, title="A set", draws=30),
    "four rows": lambda: reliability_diagram([1, 0, 1, 1], [0.8] * 4, title="Four", draws=30),
    "one way": lambda: risk_coverage_curve(Y, {"calibrated": P}),
    "six ways": lambda: risk_coverage_curve(
        Y, {f"way {i} with rather a long name of its own, longer still": P**i for i in range(1, 7)}
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_covers_another(name: str) -> None:
    """Headings, legend, labels and caption lie apart, and all lie within the picture."""
    figure = FIGURES[name]()
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    blocks = [t.get_window_extent(renderer) for t in figure.texts]
    blocks += [legend.get_window_extent(renderer) for legend in figure.legends]
    blocks += [axes.get_tightbbox(renderer) for axes in figure.axes]
    for a, b in itertools.combinations(blocks, 2):
        assert not a.overlaps(b)
    for block in blocks:
        assert block.x0 >= 0
        assert block.y0 >= 0
        assert block.x1 <= figure.bbox.x1
        assert block.y1 <= figure.bbox.y1


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_says_how_to_read_it(name: str) -> None:
    """Each has a caption, and becomes a PNG."""
    figure = FIGURES[name]()
    assert any(text.get_text().startswith("How to read it") for text in figure.texts)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue()[:4] == b"\x89PNG"


def points(figure: Figure, marker: str = "o") -> list[tuple[float, float]]:
    found = [line for line in figure.axes[0].lines if line.get_marker() == marker]
    return [xy for line in found for xy in zip(*line.get_data(), strict=True)]


def test_dots_are_the_share_that_is_right() -> None:
    """Two confidences, counted by hand: 1 of 4 right at 0.2 and 2 of 3 at 0.9."""
    figure = reliability_diagram([0, 0, 1, 0, 1, 1, 0], [0.2] * 4 + [0.9] * 3, draws=5)
    np.testing.assert_allclose(points(figure), [(0.2, 0.25), (0.9, 2 / 3)])


def test_operating_point_is_where_the_threshold_puts_you() -> None:
    """Two of four reach 0.7, one is right: the dot is at (0.5, 0.5); the shy way has none."""
    curves = {"loud": [0.9, 0.8, 0.1, 0.2], "shy": [0.3, 0.3, 0.2, 0.1]}
    figure = risk_coverage_curve([1, 0, 1, 0], curves)
    assert points(figure) == [(0.5, 0.5)]
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    assert entries[:2] == ["loud", "shy (never reaches 0.7)"]


def test_bins_keep_ties_together() -> None:
    """Equal confidences are in one bin, and bins are of about the same size otherwise."""
    assert len(set(bins(np.full(100, 0.3)))) == 1
    assert np.bincount(bins(P)).min() >= 500 // 15


def test_no_curve_is_refused() -> None:
    """A picture of nothing is a mistake."""
    with pytest.raises(ValueError, match="at least one way"):
        risk_coverage_curve([0, 1], {})


def test_pyplot_is_never_imported() -> None:
    """Drawing leaves no global state: pyplot is not even loaded."""
    code = (
        "import sys; from calibration.plots import reliability_diagram as d;"
        "d([0, 1], [0.2, 0.8], title='t', draws=2).savefig(__import__('io').BytesIO());"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"

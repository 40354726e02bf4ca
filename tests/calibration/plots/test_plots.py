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
from numpy.typing import ArrayLike

from calibration.arrays import logit, sigmoid
from calibration.metrics.calibration_error import bins, consistency_band
from calibration.plots import (
    confidence_histogram,
    draw,
    feature_effects,
    feature_groups,
    reliability_diagram,
    risk_coverage_curve,
)
from calibration.reliability import reliability_bins

RNG = np.random.default_rng(0)
P = RNG.beta(2, 2, 500)
Y = (RNG.random(500) < P).astype(int)
MOVES = np.array([1.5, -0.25, 0.5, -1.0])
LONG = "Query words in the top passage, rare ones counting more\n-12.34, usually -56.78"


def diagram(y: ArrayLike, p: ArrayLike, **options: str) -> Figure:
    return reliability_diagram(y, p, reliability_bins(y, p), **options)


FIGURES = {
    "reliability": lambda: diagram(Y, P, title="A set"),
    "four rows": lambda: diagram([1, 0, 1, 1], [0.8] * 4, title="Four"),
    "one way": lambda: risk_coverage_curve(Y, {"calibrated": P}),
    "six ways": lambda: risk_coverage_curve(
        Y, {f"way {i} with rather a long name of its own, longer still": P**i for i in range(1, 7)}
    ),
    "certified": lambda: risk_coverage_curve(
        Y, {"ours": P, "other": P**2}, certified={"ours": 0.6}
    ),
    "histogram": lambda: confidence_histogram(Y, P),
    "all right": lambda: confidence_histogram([1, 1], [0.2, 0.9]),
    "effects": lambda: feature_effects(
        [LONG] * 30,
        RNG.normal(size=30),
        base=-1.0,
        confidence=0.5,
        title="A query",
        below="confidence 0.50",
    ),
    "one effect": lambda: feature_effects(["a"], [0.0], base=0.0, confidence=0.5),
    "groups": lambda: feature_groups(
        ["logits", "+ all the others"],
        [0.05, -0.01],
        [(0.01, 0.09), (float("nan"), float("nan"))],
        notes=["2 features, AUROC 0.700", "30 features, AUROC 0.801"],
        below="two groups",
    ),
    "long names": lambda: feature_effects(
        ["Neighbouring query words side by side in the top passage\n0.70, usually 0.38"] * 6,
        np.linspace(0.9, -0.4, 6),
        base=-0.2,
        confidence=0.79,
        title="The surest answer that was wrong",
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
    names = [
        [name.get_window_extent(renderer) for name in axes.get_yticklabels() if name.get_text()]
        for axes in figure.axes
    ]
    for together in (blocks, *names):
        for a, b in itertools.combinations(together, 2):
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
    figure = diagram([0, 0, 1, 0, 1, 1, 0], [0.2] * 4 + [0.9] * 3)
    np.testing.assert_allclose(points(figure), [(0.2, 0.25), (0.9, 2 / 3)])


def test_the_diagram_draws_the_bins_that_the_page_has() -> None:
    """A dot for each bin, and none besides."""
    bins_of_the_page = reliability_bins(Y, P)[:3]
    figure = reliability_diagram(Y, P, bins_of_the_page)
    assert points(figure) == [(b.confidence, b.accuracy) for b in bins_of_the_page]


def test_operating_point_is_where_the_threshold_puts_you() -> None:
    """Two of four reach 0.7, one is right: the dot is at (0.5, 0.5); the shy way has none."""
    curves = {"loud": [0.9, 0.8, 0.1, 0.2], "shy": [0.3, 0.3, 0.2, 0.1]}
    figure = risk_coverage_curve([1, 0, 1, 0], curves)
    assert points(figure) == [(0.5, 0.5)]
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    assert entries[:2] == ["loud", "shy (never reaches 0.7)"]


def test_the_certified_threshold_is_marked_where_it_puts_you() -> None:
    """Of four queries two reach 0.6 and one of them is right: a diamond at (0.5, 0.5)."""
    curves = {"ours": [0.9, 0.6, 0.1, 0.2], "other": [0.9, 0.8, 0.7, 0.6]}
    figure = risk_coverage_curve([1, 0, 1, 0], curves, certified={"ours": 0.6})
    assert points(figure, "D") == [(0.5, 0.5)]
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    assert entries[1] == "certified threshold 0.600"
    unreached = risk_coverage_curve([1, 0, 1, 0], curves, certified={"ours": 0.95})
    assert points(unreached, "D") == []


def test_ways_with_the_same_order_both_stay_seen() -> None:
    """A curve that an earlier one would hide is a pale, wide line; the first one is thick."""
    figure = risk_coverage_curve(Y, {"ours": P, "other": 1 - P, "ours squared": P**2})
    widths = [line.get_linewidth() for line in figure.axes[0].lines if len(line.get_xdata()) > 100]
    oracle, ours, other, squared = widths
    assert squared > oracle > other
    assert ours > other


def test_histogram_splits_right_from_wrong() -> None:
    """Counted by hand: of four right ones one is in the first bin, three are in the last one."""
    figure = confidence_histogram([1, 1, 1, 1, 0], [0.01, 0.96, 0.99, 1.0, 0.5])
    right, wrong = ([bar.get_height() for bar in axes.patches] for axes in figure.axes)
    assert right == pytest.approx([0.25] + [0.0] * 18 + [0.75])
    assert wrong == pytest.approx([0.0] * 10 + [1.0] + [0.0] * 9)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["4 right, of which 3 reach 0.7 (75%)", "1 wrong, of which 0 reach 0.7 (0%)"]


def test_effects_lead_from_the_base_to_the_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strongest first, each bar starts where the one above it ended; the last dot is the query."""
    confidence = float(sigmoid(-0.5 + MOVES.sum()))
    monkeypatch.setattr("calibration.plots.STRONGEST", 2)
    figure = feature_effects(list("abcd"), MOVES, base=-0.5, confidence=confidence)
    bars = [(float(bar.get_x()), float(bar.get_width())) for bar in figure.axes[0].patches]
    assert bars == [(-0.5, 1.5), (1.0, -1.0), (0.0, 0.25)]  # a, d, and b with c
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["a usual query (0.38)", "a", "d", "2 others together", "this query (0.56)"]
    assert points(figure)[-1] == (pytest.approx(float(logit(confidence))), 4.0)


def test_effects_say_where_a_second_stage_bends_them() -> None:
    """If they do not add up to the confidence, the axis is a score and the caption says so."""
    bent = feature_effects(list("abcd"), MOVES, base=0.0, confidence=0.9)
    assert "second stage" in draw(bent).caption
    assert bent.axes[0].get_xlabel() == "score of the first stage"
    exact = feature_effects(["a"], [1.0], base=0.0, confidence=float(sigmoid(1.0)))
    assert "second stage" not in draw(exact).caption


def test_shapes_that_do_not_fit_are_refused() -> None:
    """A picture of numbers that do not belong together is a mistake, and the message says which."""
    with pytest.raises(ValueError, match="one contribution per name"):
        feature_effects(["a", "b"], [1.0], base=0.0, confidence=0.5)
    with pytest.raises(ValueError, match="an interval a name"):
        feature_groups(["a"], [0.1], [])


def test_a_drawn_picture_comes_with_and_without_its_caption() -> None:
    """Both are PNGs of the same width; the title and the caption are there as text."""
    from matplotlib.image import imread

    picture = draw(confidence_histogram(Y, P))
    whole, plain = (imread(BytesIO(png)) for png in (picture.captioned, picture.plain))
    assert whole.shape[1] == plain.shape[1]
    assert plain.shape[0] < whole.shape[0]
    np.testing.assert_array_equal(plain, whole[: len(plain)])
    assert picture.title == "Confidence of right and of wrong answers"
    assert picture.caption.startswith("How to read it: ")
    assert "\n" not in picture.caption


def test_a_name_with_dollar_signs_is_no_formula() -> None:
    """A data set's name is shown as it is, whatever it looks like."""
    name = r"$\frac$ 5_$"
    assert draw(diagram(Y, P, title=f"{name} set")).title == f"{name} set"
    for figure in (
        feature_effects([name], [1.0], base=0.0, confidence=0.5),
        feature_groups([name], [0.1], [(0.0, 0.2)]),
    ):
        figure.draw_without_rendering()


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
        "from calibration.plots import draw, feature_effects as e;"
        "from calibration.reliability import reliability_bins as b;"
        "y, p = [0, 1], [0.2, 0.8]; draw(d(y, p, b(y, p), title='t'));"
        "draw(e(['a'], [1.0], base=0.0, confidence=0.5));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_the_band_knows_groups() -> None:
    """Five copies of a row are one draw: the band is as wide as without them, not half as wide."""
    rng = np.random.default_rng(0)
    p = rng.beta(2, 2, 160)
    y = (rng.random(160) < p).astype(float)
    group = np.repeat(np.arange(160), 5)
    wide = np.diff(consistency_band(y[group], p[group], groups=group), axis=0)
    by_rows = np.diff(consistency_band(y[group], p[group]), axis=0)
    assert wide.mean() > 1.9 * by_rows.mean()

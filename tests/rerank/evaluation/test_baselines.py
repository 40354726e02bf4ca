"""The hand-set formulas: each worked out by hand, since there is nothing else to hold them to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hand_made import make_ranking

from rerank.evaluation.baselines import (
    HEURISTICS,
    TOP_LOGIT,
    coverage_score,
    entities,
    heuristic_confidences,
    seven_metric_score,
    sufficiency_score,
)
from rerank.types import Ranking


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize(
    ("dense", "temperature", "expected"),
    [
        ([0.5], [0], 0.5 + 0.03),
        ([0.39], [100], 0.39),  # not similar enough to count, hot or not
        ([0.40, 0.3], [71, 99], 0.40 + 0.03 + 0.05),
        ([0.4, 0.5, 0.45], [70, 71, "hot"], 0.5 + 3 * 0.03 + 0.05),  # above 70, and a number
        ([0.4] * 5, [90] * 5, 0.4 + 5 * 0.03 + 0.15),  # the bonus ends at 0.15
        ([0.9] * 6, [90] * 6, 1.0),
        ([-0.2], [0], 0.0),
        ([0.4] * 12, [0] * 12, 0.4 + 10 * 0.03),  # only the first ten are results
    ],
)
def test_sufficiency_score_make_ranking(
    dense: list[float], temperature: list[object], expected: float
) -> None:
    """Best similarity + 0.03 a similar result + 0.05 a hot one up to 0.15, capped at 1."""
    made = make_ranking(
        texts=["x"] * len(dense), dense=dense, metadata=[{"temperature": t} for t in temperature]
    )
    assert sufficiency_score(made) == pytest.approx(expected, abs=1e-12)


def test_seven_metric_score_make_ranking() -> None:
    """The weighted sum of seven signals, each from its definition, on two passages."""
    made = make_ranking(
        texts=["fill the gaps", "drop the gaps"],
        logits=[0.0, math.log(4)],  # scores 0.5 and 0.8
        bm25=[1.0, 2.0],
        dense=[0.1, 0.2],
        metadata=[{"graph_support": 0.4}, {"graph_support": 1.0}],
    )
    expected = (
        0.30 * 0.8  # the top score
        + 0.20 * 0.3  # less the second
        + 0.15 * 0.5  # one of two above 0.75
        + 0.15 * 1.0  # BM25 and cosine agree
        + 0.10 * (1 - 2 * 0.15)  # deviation of 0.5 and 0.8
        + 0.05 * 0.4  # of the first passage
        + 0.05 * (1 - 0.5)  # two of four words shared
    )
    assert seven_metric_score(made) == pytest.approx(expected, abs=1e-12)


def test_seven_metric_score_of_one_passage() -> None:
    """Alone there is no gap, no correlation, no spread and no diversity."""
    made = make_ranking(texts=["x"], logits=[math.log(9)])  # score 0.9
    expected = 0.30 * 0.9 + 0.15 * 1.0 + 0.10 + 0.05
    assert seven_metric_score(made) == pytest.approx(expected, abs=1e-12)


def test_disagreement_and_odd_metadata_count_as_nothing() -> None:
    """A negative correlation, and support that is not a number, are clipped to 0."""
    made = make_ranking(
        texts=["a", "b"],
        logits=[0.0, 0.0],
        bm25=[1.0, 2.0],
        dense=[0.2, 0.1],
        metadata=[{"graph_support": float("nan")}, {}],
    )
    assert seven_metric_score(made) == pytest.approx(0.30 * 0.5 + 0.10, abs=1e-12)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("fill the gaps", "nothing", 0.3),  # no entity: the mean alone
        ("does Paris exist", "paris in spring", 0.6 * 0.3 + 0.4),
        ("does Paris or Rome exist", "in Paris", 0.6 * 0.3 + 0.4 * 0.5),
        ("use numpy.linspace with 50", "numpy.linspace only", 0.6 * 0.3 + 0.4 * 0.5),
    ],
)
def test_coverage_score_make_ranking(query: str, text: str, expected: float) -> None:
    """0.6 x mean similarity + 0.4 x share of the entities found in the results."""
    made = make_ranking(query=query, texts=[text, "other"], dense=[0.4, 0.2])
    assert coverage_score(made) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where is the Eiffel Tower", ["Eiffel Tower"]),
        ("Paris", []),  # the first word has its capital from the sentence
        ("", []),
        ("series of 3.14 and pandas.DataFrame", ["3.14", "pandas.DataFrame"]),
        ("does Rome like Rome", ["Rome"]),
    ],
)
def test_entities_make_ranking(text: str, expected: list[str]) -> None:
    """Capitalised words after the first, numbers and dotted names, each once."""
    assert [e for e in entities(text) if e != "DataFrame"] == expected


def test_the_sigmoid_of_the_top_logit() -> None:
    """The best logit that was given, through a sigmoid; extremes do not overflow."""
    made = make_ranking(texts=["a", "b"], logits=[-1.0, 0.7], scored=[True, False])
    top_logit_sigmoid = HEURISTICS[TOP_LOGIT]
    assert top_logit_sigmoid(made) == pytest.approx(sigmoid(-1.0), abs=1e-12)
    assert top_logit_sigmoid(make_ranking(texts=["a"], logits=[-1e6])) < 1e-12
    assert top_logit_sigmoid(make_ranking(texts=["a"], logits=[1e6])) == pytest.approx(1.0)


@pytest.mark.parametrize("name", HEURISTICS)
def test_every_formula_gives_a_number_between_0_and_1(
    name: str, rankings: Mapping[str, Ranking]
) -> None:
    """On real rankings and on an empty one, which gets 0, as a calibrator would."""
    values = heuristic_confidences(HEURISTICS[name], [*rankings.values(), make_ranking()])
    assert values.shape == (len(rankings) + 1,)
    assert ((values >= 0) & (values <= 1)).all()
    assert values[-1] == 0.0
    assert np.ptp(values[:-1]) > 0

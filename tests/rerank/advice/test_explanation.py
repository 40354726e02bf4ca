"""Signals of real rankings add up to the confidence; recommendations follow from their cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assessments import make_assessment

from rerank.advice.explanation import (
    BANDS,
    FROM_GOOD_TO_BAD,
    SIGNAL_OF,
    SIGNALS,
    explain_by,
    signal_of,
    signals_for,
)
from rerank.assessment.fitted_maps import FittedMaps, features_of
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.predictions import predict, to_assessments
from rerank.assessment.ranking_features import ranking_features
from rerank.config import Config
from rerank.data.labels import Labelled
from rerank.types import OWN_STAGES, Assessment, ListKind, Mode, Scored

TEXTS = [f"text {i}" for i in range(5)]


@pytest.fixture(scope="module")
def assessments(to_report: Labelled[Scored], maps: FittedMaps, config: Config) -> list[Assessment]:
    modes: list[Mode] = ["search"] * len(to_report)
    return to_assessments(predict(to_report.items, maps, config), maps, config, modes)


def test_the_contributions_of_all_signals_add_up(
    assessments: list[Assessment], maps: FittedMaps
) -> None:
    """Each feature belongs to one signal: nothing that moved the confidence is left out."""
    for assessment in assessments:
        found = explain_by(maps, assessment)
        contributions = maps.confidence.contributions(ranking_features([assessment.ranking]))
        assert sum(s.log_odds for s in found.signals) == pytest.approx(contributions.sum())
        assert {s.name for s in found.signals} == set(SIGNALS) - {"graph_support"}
        assert all(np.isfinite(s.value) and s.meaning for s in found.signals)


def test_equal_passages_change_no_signal(maps: FittedMaps) -> None:
    """Nor what is recommended."""
    numbers = {"texts": ["a b", "c d", "e f"], "relevance": [0.5, 0.2, 0.1], "confidence": 0.5}
    numbers |= {"logits": [2.0, 1.0, -1.0], "bm25": [5.0, 4.0, 1.0], "dense": [0.7, 0.6, 0.1]}
    again = {
        name: [values[i] for i in (0, 0, 0, 1, 2)]
        for name, values in numbers.items()
        if name != "confidence"
    }
    ranks = {name: [1, 1, 1, 2, 3] for name in ("bm25_rank", "dense_rank")}
    once = make_assessment(titles=[""] * 3, **numbers)
    twice = make_assessment(titles=[""] * 5, confidence=0.5, **again, **ranks)
    assert explain_by(maps, twice) == explain_by(maps, once)


def test_the_headline_says_level_and_confidence(maps: FittedMaps) -> None:
    """In the words that people know."""
    found = explain_by(maps, make_assessment(texts=TEXTS, confidence=0.92))
    assert found.headline() == "RAG Confidence: HIGH - strong retrieval confidence (0.92)"
    assert not found.flagged
    assert not found.recommendations
    assert found.text().startswith(found.headline())
    assert found.to_dict()["headline"] == found.headline()
    below = explain_by(maps, make_assessment(texts=TEXTS, confidence=0.6999))
    assert below.headline().endswith("(0.69)"), "beside LOW it must not be shown as 0.70"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ({"relevance": [0.1] * 5}, "No passage reaches"),
        ({"bm25_rank": [50] * 5}, "stages disagree"),
        ({"relevance": [0.5, 0.45, 0.1, 0.1, 0.1]}, "No clear winner"),
        ({"titles": list("abcde")}, "come from many documents"),
        ({"truncated": [True, False, False, False, False]}, "max_length"),
    ],
)
def test_each_cause_has_its_recommendation(
    maps: FittedMaps, cause: dict[str, Any], words: str
) -> None:
    """It is given where the cause is measured, and not elsewhere."""
    fine: dict[str, Any] = {
        "texts": TEXTS,
        "titles": ["one"] * 5,
        "relevance": [0.6, 0.1, 0.1, 0.1, 0.1],
        "bm25_rank": [1, 2, 3, 4, 5],
        "confidence": 0.5,
    }
    assert words not in " ".join(explain_by(maps, make_assessment(**fine)).recommendations)
    found = explain_by(maps, make_assessment(**{**fine, **cause}))
    assert words in " ".join(found.recommendations)
    assert found.flagged


def test_at_most_three_signals_are_told_and_none_against_its_words(maps: FittedMaps) -> None:
    """The strongest ones whose direction is the one that their words let people expect."""
    for relevance in ((0.9, 0.05), (0.3, 0.29), (0.6, 0.3)):
        assessment = make_assessment(texts=TEXTS[:2], relevance=relevance, confidence=relevance[0])
        signals = explain_by(maps, assessment).signals
        told = [s for s in signals if s.told]
        assert len(told) <= 3
        for one in told:
            best, *_, worst = (words for (name, _), words in BANDS.items() if name == one.name)
            contradicted = {best: one.log_odds < 0, worst: one.log_odds > 0}
            assert abs(one.log_odds) >= 0.05
            assert one.name not in FROM_GOOD_TO_BAD or not contradicted.get(one.meaning, False)


@pytest.mark.parametrize(("boost", "support"), [(0.4, 0.4), ("0.4", 0.4), ("much", 0), ("inf", 0)])
def test_graph_support_is_a_number(boost: Any, support: float) -> None:
    """Metadata hold anything; JSON has no infinity."""
    metadata = [{"graph_boost": boost}] * len(TEXTS)
    measure = SIGNALS["graph_support"]
    assert measure(make_assessment(texts=TEXTS, metadata=metadata)) == support


def test_graph_support_is_told_where_it_is_fitted(maps: FittedMaps) -> None:
    """A number that no probability depends on explains none."""
    fitted = replace(maps, metadata=(MetadataFeature("graph_boost", None, 0.0),))
    assert "graph_support" in signals_for(fitted)
    assert "graph_support" not in signals_for(maps)


def test_nothing_found_is_flagged(maps: FittedMaps) -> None:
    """With the one thing to do about it."""
    found = explain_by(maps, make_assessment(confidence=0.0))
    assert found.flagged
    assert "add documents" in found.recommendations[0]


def test_the_tables_of_signals_name_what_there_is() -> None:
    """Every feature has a signal, also of lists, and everything in the table exists."""
    assert set(SIGNAL_OF.values()) <= set(SIGNALS)
    kinds = [ListKind(("keyword", "vector", "reranker"), texts) for texts in (True, False)]
    there = set()
    for features in map(features_of, (OWN_STAGES, *kinds)):
        for group, names in features.groups.items():
            assert all(signal_of(name, group) in SIGNALS for name in names)
            there |= {group, *(name.rpartition(".")[2] for name in names)}
    assert set(SIGNAL_OF) <= there

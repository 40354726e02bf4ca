"""From probabilities to decisions: the bands by hand, and reasons in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assessments import make_assessment
from hypothesis import given
from hypothesis import strategies as st

from calibration.arrays import log_odds, sigmoid
from calibration.thresholds import Certificate
from rerank.assessment import predictions
from rerank.assessment.fitted_maps import NO_FILTER, FittedMaps
from rerank.assessment.predictions import predict
from rerank.assessment.ranking_features import RANKING_FEATURES, meaning
from rerank.config import Config, Thresholds
from rerank.data.labels import Labelled
from rerank.types import Mode, Query, Scored

T = Thresholds()


@pytest.mark.parametrize(
    ("confidence", "level", "accepted"),
    [
        (1.0, "HIGH", True),
        (0.9, "HIGH", True),
        (np.nextafter(0.9, 0), "MEDIUM", True),
        (0.7, "MEDIUM", True),
        (np.nextafter(0.7, 0), "LOW", False),
        (0.5, "LOW", False),
        (np.nextafter(0.5, 0), "VERY_LOW", False),
        (0.0, "VERY_LOW", False),
    ],
)
def test_levels_by_hand(confidence: float, level: str, accepted: bool) -> None:
    """A band begins at its threshold; below 0.7 an answer is advisory."""
    assert T.level(confidence) == level
    assert T.accepts(confidence) == accepted


@pytest.mark.parametrize(
    ("sufficiency", "verdict"),
    [
        (1.0, "SUFFICIENT"),
        (0.7, "SUFFICIENT"),
        (np.nextafter(0.7, 0), "PARTIAL"),
        (0.4, "PARTIAL"),
        (np.nextafter(0.4, 0), "INSUFFICIENT"),
        (0.0, "INSUFFICIENT"),
    ],
)
def test_verdicts_by_hand(sufficiency: float, verdict: str) -> None:
    """Two thresholds on sufficiency, each the start of its band."""
    assert T.verdict(sufficiency) == verdict


LEVELS = ["VERY_LOW", "LOW", "MEDIUM", "HIGH"]


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted), st.floats(0, 1))
def test_more_confidence_is_never_a_lower_level(bands: list[float], confidence: float) -> None:
    """Whatever the thresholds, levels rise with confidence and agree with acceptance."""
    low, medium, high = bands
    t = Thresholds(high=high, medium=medium, low=low)
    here, above = (LEVELS.index(t.level(c)) for c in (confidence, min(1.0, confidence + 0.1)))
    assert above >= here
    assert t.accepts(confidence) == (here >= LEVELS.index("MEDIUM"))


def test_reasons_by_hand() -> None:
    """The three features that moved the log-odds most, strongest first, with their side."""
    names = list(RANKING_FEATURES)[:5]
    moves = np.array([0.2, -1.5, 0.01, 0.7, -0.3])
    values, usual = np.arange(5.0), (9.0,) * 5
    found = predictions.reasons(names, values, usual, moves)
    assert len(found) == 3
    for text, i in zip(found, (1, 3, 4), strict=True):
        assert text.startswith("for: " if moves[i] > 0 else "against: ")
        assert meaning(names[i]).lower() in text
        assert f"{values[i]:.2f}" in text
        assert f"{moves[i]:+.2f}" in text


def test_what_moves_nothing_is_no_reason() -> None:
    """A slight contribution is not worth reading."""
    names = list(RANKING_FEATURES)[:2]
    assert predictions.reasons(names, np.zeros(2), (0.0, 0.0), np.array([0.01, -0.02])) == ()


def test_reasons_start_where_a_usual_query_stands(
    maps: FittedMaps, to_report: Labelled[Scored], config: Config
) -> None:
    """From there, all that moves the log-odds gives the confidence."""
    predicted = predict(to_report.items, maps, config)
    answers = predictions.to_assessments(predicted, maps, config, ["search"] * len(to_report))
    moves = maps.confidence.contributions(predicted.features).sum(axis=1)
    start = maps.confidence.predict(np.array([maps.confidence.first.mean]))
    expected = sigmoid(log_odds(start) + moves)
    for answer, confidence in zip(answers, expected, strict=True):
        assert f"start: a query with usual evidence has {start[0]:.2f}" in answer.reasons
        assert answer.confidence == pytest.approx(confidence, abs=1e-9)


def test_a_certified_context_is_sufficient(
    maps: FittedMaps, to_report: Labelled[Scored], config: Config
) -> None:
    """At its threshold, which may lie below the target; without a certificate none is."""
    sure = Certificate(0.1, 0.7, 0.95, 100, 100, 90, None, event="hold an answer")
    for context, expected in ((sure, True), (None, False)):
        told = replace(maps, context_certificate=context)
        predicted = predict(to_report.items, told, config)
        answers = predictions.to_assessments(predicted, told, config, ["search"] * len(to_report))
        features = np.stack([a.features for a in answers])
        unlike = predictions.unlike_labelled(features, maps)
        sufficient = [
            a.verdict == "SUFFICIENT" and expected and not strange
            for a, strange in zip(answers, unlike, strict=True)
        ]
        assert any(sufficient) == expected
        assert [a.context_certified for a in answers] == sufficient
        assert [a.to_dict()["context_certified"] for a in answers] == sufficient


def test_a_question_unlike_the_labelled_ones_is_never_certified(
    maps: FittedMaps, to_report: Labelled[Scored], config: Config
) -> None:
    """Few held-out questions are unlike; with three features out of range none is certified."""
    predicted, first = predict(to_report.items, maps, config), maps.confidence.first
    assert predictions.unlike_labelled(predicted.features, maps).mean() < 0.5
    all_certified = Certificate(0.0, 0.7, 0.95, 100, 100, 90, None)
    told = replace(maps, certificate=all_certified, context_certificate=all_certified)
    features = predicted.features.copy()
    features[:, :3] = 1e6
    strange = replace(predicted, features=features)
    modes: list[Mode] = ["search"] * len(to_report)
    both = (predicted, strange)
    usual, unlike = (predictions.to_assessments(p, told, config, modes) for p in both)
    assert any(a.certified for a in usual)
    assert any(a.context_certified for a in usual)
    assert not any(a.certified or a.context_certified for a in unlike)
    assert [a.accepted for a in unlike] == [a.accepted for a in usual]
    assert all((predictions.UNLIKE in a.reasons) == a.accepted for a in unlike)
    flat = replace(maps.confidence, first=replace(first, low=(), high=()))
    assert not predictions.unlike_labelled(features, replace(maps, confidence=flat)).any()
    labelled = features.min(axis=0), features.max(axis=0)
    as_labelled = replace(maps, feature_range=tuple(tuple(x.tolist()) for x in labelled))
    assert not predictions.unlike_labelled(features, as_labelled).any()


def test_a_filter_that_no_labelled_question_had_certifies_nothing(
    maps: FittedMaps, to_report: Labelled[Scored], config: Config
) -> None:
    """Nor does none, where each had one: of the same numbers, by both certificates, and told."""
    sure = Certificate(0.0, 0.7, 0.95, 100, 100, 90, None)
    predicted = predict(to_report.items, maps, config)
    where = Query("a", where={"year": 2020, "language": "en"}).where  # type: ignore[arg-type]
    filtered = replace(
        predicted,
        rankings=[
            replace(r, candidates=replace(r.candidates, query=replace(r.query, where=where)))
            for r in predicted.rankings
        ],
    )
    modes: list[Mode] = ["search"] * len(to_report)
    for filters in (NO_FILTER, frozenset({("language", "year")})):
        told = replace(maps, certificate=sure, context_certificate=sure, filters=filters)
        told = FittedMaps.from_dict(told.to_dict())
        assert told.filters == filters
        for asked, had in ((predicted, ()), (filtered, ("language", "year"))):
            answers = predictions.to_assessments(asked, told, config, modes)
            known = had in filters
            assert any(a.certified for a in answers) == known
            assert any(a.context_certified for a in answers) == known
            assert [a.certified for a in answers] == list(
                predictions.certified(asked, told, config.thresholds)
            )
            words = "a filter on language and year" if had else "no filter"
            said = predictions.FILTERED.format(words)
            assert all((said in a.reasons) != known for a in answers if len(a.ranking))
            assert any(a.accepted for a in answers)


def test_a_second_model_that_changed_did_not_fail() -> None:
    """The first one answers for either, not calibrated, and says which it was."""
    first, why = make_assessment(confidence=0.5), "not calibrated: another model"
    for failed in (True, False):
        second = replace(first, calibrated=False, first_stage=failed, reasons=(why, "for: this"))
        found = predictions.joined(first, second)
        assert (found.calibrated, found.answered_by) == (False, "first")
        assert found.first_stage == failed == (found.reasons[0] == predictions.SECOND_FAILED)
        assert (why in found.reasons[0]) != failed

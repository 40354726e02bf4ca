"""The policy: bands by hand, and advice that is recorded and never lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from assessments import make_assessment

from rerank.config import Thresholds
from rerank.errors import InputError
from rerank.rag.decisions import LEGAL, decide


@pytest.mark.parametrize(
    ("confidence", "level", "action", "flagged"),
    [
        (0.9, "HIGH", "use directly and cite", False),
        (np.nextafter(0.9, 0), "MEDIUM", "use with caution, verify", False),
        (0.7, "MEDIUM", "use with caution, verify", False),
        (
            np.nextafter(0.7, 0),
            "LOW",
            "advisory only, verification required",
            True,
        ),
        (np.nextafter(0.5, 0), "VERY_LOW", "do not use, flag for review", True),
        (0.0, "VERY_LOW", "do not use, flag for review", True),
    ],
)
def test_levels_by_hand(confidence: float, level: str, action: str, flagged: bool) -> None:
    """A band begins at its threshold; below 0.7 the answer is flagged."""
    found = decide(make_assessment(texts=["a"], confidence=float(confidence)))
    assert (found.level, found.action, found.flagged) == (level, action, flagged)


def test_a_decision_is_plain_json() -> None:
    """Also for a confidence of NumPy, whose event can be recorded."""
    found = decide(make_assessment(texts=["a"]), confidence=np.float32(0.5))
    assert json.loads(json.dumps(found.to_dict()))["confidence"] == 0.5


def test_the_level_is_also_a_flag_of_one_word() -> None:
    """As other documents name it."""
    found = decide(make_assessment(texts=["a"], confidence=0.8))
    assert (found.flag, found.to_dict()["flag"]) == ("MEDIUM_CONFIDENCE", "MEDIUM_CONFIDENCE")


def test_other_thresholds_can_be_given() -> None:
    """As one object; the legal ones begin HIGH at 0.85."""
    sure = make_assessment(texts=["a"], confidence=0.86)
    assert (decide(sure, LEGAL).level, decide(sure).level) == ("HIGH", "MEDIUM")
    strict = decide(sure, Thresholds(medium=0.9))
    assert (strict.level, strict.flagged) == ("LOW", True)


def test_bands_that_meet_give_no_higher_level_without_calibration() -> None:
    """LOW at most, even where HIGH begins at the same number."""
    t = Thresholds(high=0.5, medium=0.5, low=0.5)
    assert t.level(0.99) == "HIGH"
    assert t.level(0.99, calibrated=False) == "LOW"
    assert t.level(0.1, calibrated=False) == "VERY_LOW"


def test_low_confidence_is_recorded_and_handed_over() -> None:
    """The event names confidence, threshold and summary; the answer is there, and flagged."""
    assessment = make_assessment(texts=["a"], confidence=0.42)
    events: list[Mapping[str, Any]] = []
    found = decide(assessment, summary="what a is", record=events.append)
    assert found.assessment is assessment
    assert events == [
        {
            "event": "RAG_ADVISORY_LOW_CONFIDENCE",
            "confidence": 0.42,
            "threshold": 0.7,
            "summary": "what a is",
        }
    ]


def test_a_sure_answer_is_not_recorded() -> None:
    """There is nothing to tell."""
    events: list[Mapping[str, Any]] = []
    assert not decide(make_assessment(texts=["a"], confidence=0.8), record=events.append).flagged
    assert not events


def test_without_a_recorder_the_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """As one line of JSON."""
    with caplog.at_level(logging.WARNING):
        decide(make_assessment(texts=["a"], confidence=0.1))
    assert json.loads(caplog.messages[0])["event"] == "RAG_ADVISORY_LOW_CONFIDENCE"


def test_a_recorder_that_fails_loses_no_advice(caplog: pytest.LogCaptureFixture) -> None:
    """The decision is handed over, and the event stands in the log."""

    def broken(_: Mapping[str, Any]) -> None:
        raise OSError("disk full")

    with caplog.at_level(logging.ERROR):
        assert decide(make_assessment(texts=["a"], confidence=0.1), record=broken).flagged
    assert "RAG_ADVISORY_LOW_CONFIDENCE" in caplog.text


def test_the_confidence_of_an_answer_takes_the_place_of_the_retrieval_s() -> None:
    """A sure retrieval does not make a bad answer sure."""
    assessment = make_assessment(texts=["a"], confidence=0.95)
    assert decide(assessment, confidence=0.3).level == "VERY_LOW"


@pytest.mark.parametrize("wrong", [1.2, -0.1, float("nan"), "x", [0.5]])
def test_a_confidence_that_is_no_probability_is_refused(wrong: Any) -> None:
    """The message says what came, what was expected, and what to do."""
    with pytest.raises(InputError, match=r"`confidence` should be a number from 0 to 1, got .*out"):
        decide(make_assessment(texts=["a"]), confidence=wrong)

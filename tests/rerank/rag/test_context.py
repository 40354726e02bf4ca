"""The gate: verdicts and notes by hand, and a failure that breaks nothing."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from assessments import make_assessment

from rerank.config import Thresholds
from rerank.errors import InputError
from rerank.rag.decisions import gate, gate_handed_on

TEXTS = ("one", "two", "three", "four", "five", "six")
RELEVANCE = (0.5, 0.3, 0.2, 0.1, 0.1, 0.9)


@pytest.mark.parametrize(
    ("sufficiency", "verdict", "note"),
    [
        (0.82, "SUFFICIENT", ""),
        (0.70, "SUFFICIENT", ""),
        (0.58, "PARTIAL", "[CONTEXT NOTE: Partial match (58% confidence). "),
        (0.6999, "PARTIAL", "[CONTEXT NOTE: Partial match (69% confidence). "),
        (0.31, "INSUFFICIENT", "[CONTEXT WARNING: "),
    ],
)
def test_verdict_and_note_follow_sufficiency(sufficiency: float, verdict: str, note: str) -> None:
    """The bands begin at 0.7 and 0.4; only a sufficient context goes without a note."""
    found = gate(make_assessment(texts=TEXTS, relevance=RELEVANCE, sufficiency=[0.1, sufficiency]))
    assert found.verdict == verdict
    assert found.sufficiency == sufficiency
    assert found.usable_count == 3  # of the first five, at 0.2 or more
    assert found.note().startswith(note)
    assert bool(found.note()) == bool(note)


def test_a_warning_tells_the_confidence() -> None:
    """It is the probability that the passages hold an answer."""
    note = gate(make_assessment(texts=TEXTS, sufficiency=[0.31])).note()
    assert note.endswith("Confidence: 31%.]")


def test_the_gate_looks_at_as_many_passages_as_are_handed_on() -> None:
    """Sufficiency and usable passages are those of the first k."""
    assessment = make_assessment(
        texts=TEXTS, relevance=RELEVANCE, sufficiency=[0.3, 0.5, 0.6, 0.7, 0.8, 0.95]
    )
    found = gate(assessment, 2, floor=0.4)
    assert (found.sufficiency, found.verdict, found.usable_count) == (0.5, "PARTIAL", 1)


def test_the_note_counts_different_passages_by_the_floor() -> None:
    """The floor is not a probability from which a passage is likely to be relevant."""
    copies = make_assessment(
        texts=["one", "one", "two", "three"],
        titles=[""] * 4,
        relevance=[0.5, 0.5, 0.3, 0.1],
        sufficiency=[0.5],
    )
    found = gate(copies, 4)
    assert found.usable_count == 2
    assert "2 of 3 passages reach a relevance of 0.2;" in found.note()
    two = gate_handed_on(copies, 2, floor=0.4)
    assert (two.k, two.usable_count) == (2, 1)
    assert "1 of 2 passages reaches a relevance of 0.4;" in two.note()


def test_nothing_found_is_insufficient() -> None:
    """No passage, no context."""
    found = gate(make_assessment(confidence=0.0))
    assert (found.verdict, found.usable_count) == ("INSUFFICIENT", 0)
    assert "No passage was found." in found.note()


@pytest.mark.parametrize("broken", [(), (float("nan"),) * 10])
def test_a_failing_gate_marks_the_context_as_unassessed(
    broken: tuple[float, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """It raises nothing; the failure is logged with its traceback."""
    assessment = replace(make_assessment(texts=TEXTS), sufficiency_at=broken)
    with caplog.at_level(logging.ERROR):
        found = gate(assessment)
    assert (found.verdict, found.sufficiency) == ("UNASSESSED", None)
    assert "could not be assessed" in found.note()
    assert caplog.records[0].exc_info


@pytest.mark.parametrize("wrong", [{"k": 0}, {"k": 11}, {"floor": 1.5}, {"floor": float("nan")}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    """They are the caller's, and not the assessment's."""
    with pytest.raises(InputError, match="`k` from 1 to 10"):
        gate(make_assessment(texts=TEXTS), **wrong)


def test_thresholds_can_be_given() -> None:
    """As one object, for this call alone."""
    assessment = make_assessment(texts=TEXTS, sufficiency=[0.6])
    assert gate(assessment).verdict == "PARTIAL"
    assert gate(assessment, thresholds=Thresholds(sufficient=0.6)).verdict == "SUFFICIENT"

"""Without labels of the corpus nothing is promised, however high the numbers are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assessments import make_assessment

from rerank.advice.adaptive import take
from rerank.advice.explanation import explain_by
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.rag.decisions import decide, gate
from rerank.types import Assessment


@pytest.fixture
def unlabelled() -> Assessment:
    """An assessment with a confidence of .95 by a model without labels."""
    texts = ("The median is a middle value.", "The mean is a sum.")
    found = make_assessment(confidence=0.95, texts=texts, dense=[0.8, 0.5])
    return replace(found, features=np.zeros(len(RANKING_FEATURES)), calibrated=False)


def test_the_gate_says_partial(unlabelled: Assessment) -> None:
    """And the note says why."""
    found = gate(unlabelled)
    assert found.verdict == "PARTIAL"
    assert "not calibrated" in found.note()
    assert gate(replace(unlabelled, calibrated=True)).verdict == "SUFFICIENT"


def test_advice_is_low_and_flagged(unlabelled: Assessment) -> None:
    """The event is recorded; an answer's own confidence, fitted on labels, counts as it is."""
    events: list[Any] = []
    found = decide(unlabelled, record=events.append)
    assert (found.level, found.flagged, len(events)) == ("LOW", True, 1)
    assert found.to_dict()["calibrated"] is False
    fitted = decide(unlabelled, confidence=0.95)
    assert (fitted.level, fitted.flagged) == ("HIGH", False)


def test_retrieval_is_flagged(unlabelled: Assessment, maps: FittedMaps) -> None:
    """With the labels to make as the first recommendation."""
    found = explain_by(maps, unlabelled)
    assert found.flagged
    assert "not calibrated" in found.headline()
    assert found.recommendations[0].startswith("The confidence is not calibrated: label")
    assert found.to_dict()["calibrated"] is False


def test_passages_handed_on_are_marked(unlabelled: Assessment) -> None:
    """By adaptive retrieval and by the adapters of other frameworks."""
    assert take(unlabelled).to_dict()["calibrated"] is False
    top = unlabelled.top
    assert top is not None
    document_metadata = pytest.importorskip("rerank.adapters").document_metadata
    assert document_metadata(unlabelled, top)["calibrated"] is False

"""What is said to come next depends on the certificate, and on whether the model is tracked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibration.thresholds import Certificate
from rerank.report.headline import after_calibration

NOTHING = Certificate(None, 0.7, 0.95, 100, 0, 0, labels_needed=240)
CERTIFIED = replace(NOTHING, threshold=0.6, accepted=40, right=36, labels_needed=None)
SEARCH = 'rerank search {model} "a query of yours"'
EVENLY = "drawn evenly from the same questions (`rerank label --draw even`)"
TRY = f"queries, {EVENLY}, and calibrate again; to try the model: {SEARCH}"


@pytest.mark.parametrize(
    ("certificate", "promotable", "expected"),
    [
        (NOTHING, True, f"label about 140 more {TRY}"),
        (replace(NOTHING, labels_needed=None, refused="No doubt."), True, SEARCH),
        (replace(NOTHING, labels_needed=None), True, SEARCH),
        (CERTIFIED, True, "rerank model promote {model} {dataset}"),
        (CERTIFIED, False, "rerank serve {model}"),
    ],
)
def test_what_comes_next(certificate: Certificate, promotable: bool, expected: str) -> None:
    """Labels where nothing is certified; else the champion, where MLflow has the model."""
    assert after_calibration(certificate, promotable=promotable) == expected


def test_lists_are_not_labelled_by_a_command() -> None:
    """So none is named; they come from another system."""
    advised = after_calibration(NOTHING, promotable=True, mode="lists")
    assert advised.startswith("label about 140 more queries and calibrate again; ")


def test_labels_that_were_not_used_come_before_new_ones() -> None:
    """`--max-queries` left them out."""
    advised = after_calibration(NOTHING, promotable=True, unused=1234)
    used = "calibrate on more of the 1,234 labelled queries that were not used"
    assert advised == f"{used}; to try the model: {SEARCH}"

"""What is said to come next depends on the certificate, and on whether the model is tracked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import call
from known_lists import known_lists, write_lines

from calibration.thresholds import Certificate
from rerank.assessment.fitted_maps import read_maps
from rerank.assessment.model_folder import open_folder
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


def test_sixty_labels_give_the_certificate_of_the_context_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first passages together, within the three first lines that `calibrate` prints."""
    lists = write_lines(tmp_path / "lists.jsonl", known_lists(60, seed=1))
    arguments = ["calibrate", lists, "--out", tmp_path / "model", "--work", tmp_path / "work"]
    assert call(*arguments, "--sufficiency-k", "5", "--calibrator", "logistic") == 0
    first = capsys.readouterr().out.splitlines()[:3]
    certificate = read_maps(open_folder(tmp_path / "model")).main.context_certificate
    assert certificate is not None
    assert certificate.threshold is not None
    (line,) = [one for one in first if one.startswith("One of the first 5: ")]
    assert certificate.brief in line

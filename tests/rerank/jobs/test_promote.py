"""The gate before champion: what it asks, what it measures, and what it does to the registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.config import PromotionGate
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.evaluation.evaluate import OURS, Evaluation
from rerank.jobs.drift import drift
from rerank.jobs.evaluate import evaluate_model
from rerank.jobs.promote import champion_checks, own_checks, promote, table
from rerank.tracking.registry import champion
from rerank.tracking.uris import NAME
from rerank.types import Query
from rerank.workspace import tracked_run

Run = Any  # the session's run, see conftest


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder)


@pytest.fixture(scope="module")
def measured(run: Run, model: CalibratedReranker, small: LabelledSet) -> Evaluation:
    return evaluate_model(model, small, "test", work=run.work)[0]


def named(checks: list[Any]) -> dict[str, bool]:
    return {check.name: check.holds for check in checks}


def test_each_threshold_can_fail(
    run: Run, model: CalibratedReranker, measured: Evaluation, small: LabelledSet
) -> None:
    """An easy gate lets the model through; each limit stops it, and so do queries it knows."""
    easy = PromotionGate(most_smece=1.0, least_certified=0.0)
    assert all(named(own_checks(model, measured, small, easy)).values())
    strict = own_checks(model, measured, small, PromotionGate(most_smece=0.0, least_certified=0.0))
    assert not named(strict)["calibrated"]
    all_of_it = own_checks(model, measured, small, replace(easy, least_certified=1.0))
    assert not named(all_of_it)["certified"]
    lucky = replace(model.calibrators.certificate, threshold=0.0)
    refuted = CalibratedReranker.load(run.folder)
    refuted.calibrators = replace(model.calibrators, certificate=lucky)
    wrong = replace(measured, right=np.zeros_like(measured.right))
    assert not named(own_checks(refuted, wrong, small, easy))["certified"]
    known, _ = evaluate_model(model, small, "train", work=run.work)
    assert not named(own_checks(model, known, small, easy))["unseen"]


def against(candidate: Evaluation, champion: Evaluation, small: LabelledSet) -> dict[str, bool]:
    """The last words of the checks, and whether they hold."""
    made = champion_checks(candidate, champion, small, PromotionGate(), version="1")
    return {name.rpartition(": ")[2]: holds for name, holds in named(made).items()}


def test_what_is_lost_to_the_champion_fails(measured: Evaluation, small: LabelledSet) -> None:
    """Against itself a model passes; one that is sure of everything wrong does not, nor does one
    that is rarely right and knows it.
    """
    assert all(against(measured, measured, small).values())
    wrong = {**measured.confidences, OURS: np.where(measured.right == 1, 0.01, 0.99)}
    worse = replace(measured, confidences=wrong)
    assert against(worse, measured, small) == {"right answers": True, "log loss": False}
    never = np.zeros_like(measured.right)
    sure = {**measured.confidences, OURS: np.full(len(never), 0.001)}
    modest = replace(measured, right=never, confidences=sure)
    assert against(modest, measured, small) == {"right answers": False, "log loss": True}


def test_few_queries_prove_nothing(measured: Evaluation, small: LabelledSet) -> None:
    """A constant against a champion passes no more because there are few queries to lose on."""
    constant = {**measured.confidences, OURS: np.full(len(measured.right), 0.5)}
    found = against(replace(measured, confidences=constant), measured, small)
    assert found == {"right answers": True, "log loss": False}


def test_a_passed_gate_crowns_the_version_of_the_run(run: Run, small: LabelledSet) -> None:
    """First it fails and there is no champion; then it passes; then it must match itself."""
    uri = tracked_run(run.folder, run.work)["tracking_uri"]
    checks, version = promote(run.folder, small, "test", PromotionGate(0.0, 0.0), work=run.work)
    assert version is None
    assert "FAILED  calibrated" in table(checks)
    assert champion(NAME, tracking_uri=uri) is None
    easy = PromotionGate(most_smece=1.0, least_certified=0.0)
    checks, version = promote(run.folder, small, "test", easy, work=run.work)
    assert version is not None
    assert not any("champion" in name for name in named(checks))
    checks, again = promote(run.folder, small, "test", easy, work=run.work)
    assert again == version
    assert sum("champion" in name for name in named(checks)) == 2
    assert champion(NAME, tracking_uri=uri)[0] == version


def test_a_model_without_a_run_cannot_be_promoted(
    run: Run, small: LabelledSet, tmp_path: Path
) -> None:
    """The registry holds versions of runs: an unknown folder is refused."""
    with pytest.raises(InputError, match="no run of it is known"):
        promote(run.folder, small, "test", PromotionGate(), work=tmp_path)


def test_the_alarm_hears_other_questions(model: CalibratedReranker, small: LabelledSet) -> None:
    """The set's own test queries raise none; questions about something else do."""
    queries, groups = small.asked("test")
    assert not drift(model, queries, groups=groups).fired
    strange = [Query(f"who won the {1950 + i} election in county {i}", f"s{i}") for i in range(40)]
    found = drift(model, strange)
    assert found.fired
    assert found.moves[0].name in found.table()
    with pytest.raises(InputError, match="none of the queries"):
        drift(model, [])

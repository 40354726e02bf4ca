"""The session's model, loaded."""

from __future__ import annotations

from typing import Any

import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.inference.score_cache import ScoreCache
from rerank.workspace import Workspace


@pytest.fixture(scope="session")
def model(run: Any) -> CalibratedReranker:
    """A real model of the small set; scores that the run has made are not made again."""
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


@pytest.fixture(scope="session")
def questions(run: Any) -> list[str]:
    """A few real queries of the run."""
    return [q.text for q in run.plan.report.items[:4]]

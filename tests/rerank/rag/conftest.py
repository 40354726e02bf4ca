"""The session's model, loaded."""

from __future__ import annotations

from typing import Any

import pytest

from rerank.assessment.model import CalibratedReranker


@pytest.fixture(scope="session")
def model(opened: CalibratedReranker) -> CalibratedReranker:
    """A real model of the small set."""
    return opened


@pytest.fixture(scope="session")
def questions(run: Any) -> list[str]:
    """A few real queries of the run."""
    return [q.text for q in run.plan.report.items[:4]]

"""The session's model, and a copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rerank.assessment.model import CalibratedReranker


@pytest.fixture(scope="session")
def model(run: Any) -> CalibratedReranker:
    """The model that is served, in this process."""
    return CalibratedReranker.load(run.folder)


@pytest.fixture
def place(run: Any, tmp_path: Path) -> Path:
    """Where the server's model lies: a copy that a test may replace."""
    return Path(shutil.copytree(run.folder, tmp_path / "model"))

"""A client of one server of the session's model, and what it is compared with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server import serving

from rerank.assessment.model import CalibratedReranker


@pytest.fixture(scope="session")
def model(run: Any) -> CalibratedReranker:
    """The model that is served, in this process."""
    return CalibratedReranker.load(run.folder)


@pytest.fixture(scope="module")
def client(run: Any) -> Iterator[httpx.Client]:
    """A client of a running server."""
    with (
        serving(run.folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as made,
    ):
        yield made


@pytest.fixture(scope="session")
def queries(small: Any) -> list[str]:
    """A dozen real queries."""
    return [q.text for q in list(small.queries.values())[:12]]


@pytest.fixture
def place(run: Any, tmp_path: Path) -> Path:
    """Where the server's model lies: a copy that a test may replace."""
    return Path(shutil.copytree(run.folder, tmp_path / "model"))

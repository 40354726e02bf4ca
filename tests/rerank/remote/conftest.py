"""The server, for each test anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_server import Server, running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The server."""
    with running_server(tmp_path / "cache") as server:
        yield server

"""`rerank evaluate`: what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import refused

Run = Any  # the session's run, see conftest


def test_an_unknown_split_is_refused(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the splits that there are."""
    message = refused(
        capsys, "evaluate", run.folder, small_folder, "--split", "tset", "--work", tmp_path
    )
    assert "'tset'" in message
    assert "'test'" in message


def test_a_split_without_queries_is_refused(
    run: Run, copied_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty split file is a split, and there is nothing in it to measure."""
    (copied_set / "splits/later.txt").write_text("")
    refused(capsys, "evaluate", run.folder, copied_set, "--split", "later", "--work", tmp_path)

"""A labelled set that a test of a command may change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copied_set(small_folder: Path, tmp_path: Path) -> Path:
    """A copy of the small set."""
    return Path(shutil.copytree(small_folder, tmp_path / "set"))


@pytest.fixture
def few(copied_set: Path) -> Path:
    """The small set with five passages and no right ones."""
    lines = (copied_set / "corpus.jsonl").read_text().split("\n")[:5]
    (copied_set / "corpus.jsonl").write_text("\n".join(lines))
    for path in copied_set.glob("qrels/*.tsv"):
        path.write_text("")
    return copied_set

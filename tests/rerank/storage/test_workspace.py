"""The working folder: where its parts lie, and which runs it keeps in mind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rerank
from rerank.storage.folder import Workspace


def test_a_run_is_kept_in_mind_of_this_very_folder(tmp_path: Path) -> None:
    """By its manifest: a copy is the same model, another model is not, wherever it lies."""
    work = Workspace(tmp_path / "work")
    assert work.tracked("a") is None
    work.note_tracked("a", {"run_id": "1"})
    assert work.tracked("a") == {"run_id": "1"}
    assert Workspace(tmp_path / "elsewhere").tracked("a") is None
    assert work.tracked("b") is None


@pytest.mark.parametrize("content", ["", "[]", "{", "\x00"])
def test_a_broken_note_is_none(tmp_path: Path, content: str) -> None:
    """Then the run is looked for in the store."""
    work = Workspace(tmp_path)
    work.note_tracked("a", {"run_id": "1"})
    (note,) = (tmp_path / "tracked").iterdir()
    note.write_text(content)
    assert work.tracked("a") is None


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    """To name a part makes no folder and no file."""
    work = Workspace(tmp_path / "work")
    parts = (work.indexes, work.scores, work.checkpoints, work.database, work.artifacts)
    assert all(part.is_relative_to(work.path) for part in parts)
    assert work.tracking_uri == f"sqlite:///{work.database}"
    assert not work.path.exists()


def test_no_part_is_named_elsewhere() -> None:
    """The layout is this value: no other module spells a name of it."""
    names = re.compile(r'"(scores\.sqlite|mlflow\.db|mlartifacts|tracked|checkpoints)"')
    home = Path(rerank.__file__).parent
    found = {
        path.name for path in home.rglob("*.py") if names.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"folder.py"}

"""The working folder: where its parts lie, and which runs it keeps in mind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rerank
from rerank.storage.folder import write_folder
from rerank.workspace import Workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "model", lambda _: {"name": "a model"})
    return tmp_path / "model"


def test_a_run_is_kept_in_mind_of_this_very_folder(folder: Path, tmp_path: Path) -> None:
    """By its content: a copy is the same model, another model is not, wherever it lies."""
    work = Workspace(tmp_path / "work")
    assert work.tracked(folder) is None
    work.note_tracked(folder, {"run_id": "1"})
    assert work.tracked(folder) == {"run_id": "1"}
    assert Workspace(tmp_path / "elsewhere").tracked(folder) is None
    write_folder(folder, lambda _: {"name": "another"}, overwrite=True)
    assert work.tracked(folder) is None


@pytest.mark.parametrize("content", ["", "[]", "{", "\x00"])
def test_a_broken_note_is_none(folder: Path, tmp_path: Path, content: str) -> None:
    """Then the run is looked for in the store."""
    work = Workspace(tmp_path)
    work.note_tracked(folder, {"run_id": "1"})
    (note,) = (tmp_path / "tracked").iterdir()
    note.write_text(content)
    assert work.tracked(folder) is None


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
    assert found == {"workspace.py"}

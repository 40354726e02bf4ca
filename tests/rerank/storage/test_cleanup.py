"""Writers that are killed: nothing half-written under a name, and the next writer clears up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rerank.errors import FolderError
from rerank.storage.files import MIN_AGE, locked, remove_leftovers
from rerank.storage.folder import is_made_from, verify_folder, write_folder

WRITER = """
import sys, time
from pathlib import Path
from rerank.storage import folder as store

def wait(*_):
    print("here", flush=True)
    time.sleep(3600)

def fill(folder):
    (folder / "a.txt").write_text("two")
    if {point!r} == "filling":
        wait()
    return {{"name": "second"}}

if {point!r} == "between the renames":
    store.sync_before = store.Path.rename
    first = []
    def rename(self, target):
        store.sync_before(self, target)
        if not first:
            first.append(target)
            wait()
    store.Path.rename = rename
store.write_folder(Path({path!r}), fill, overwrite=True)
"""


def first(folder: Path) -> dict[str, str]:
    (folder / "a.txt").write_text("one")
    return {"name": "first"}


def second(folder: Path) -> dict[str, str]:
    (folder / "a.txt").write_text("two")
    return {"name": "second"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_folder(tmp_path / "model", first)
    return tmp_path / "model"


def killed(path: Path, point: str) -> None:
    """A writer of `path` in a process of its own, killed at a point."""
    code = WRITER.format(point=point, path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"here\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait()


def age(folder: Path) -> None:
    """Make what lies there look as old as what is cleared away."""
    then = time.time() - 2 * MIN_AGE
    for name in os.listdir(folder):
        os.utime(folder / name, (then, then))


def test_a_writer_killed_while_it_fills_leaves_the_old_folder(saved: Path) -> None:
    """What it left is cleared away by the next one, however young it is."""
    killed(saved, "filling")
    assert verify_folder(saved)["name"] == "first"
    assert len(os.listdir(saved.parent)) == 2
    write_folder(saved, second, overwrite=True)
    assert verify_folder(saved)["name"] == "second"
    assert os.listdir(saved.parent) == ["model"]


def test_a_writer_killed_between_the_renames_loses_nothing(saved: Path) -> None:
    """For that moment nothing stands under the name; the next writer puts the old folder back."""
    killed(saved, "between the renames")
    assert not saved.exists()
    with pytest.raises(FolderError, match="exists"):
        write_folder(saved, second)
    assert verify_folder(saved)["name"] == "first"
    assert is_made_from(saved, {"name": "first"})
    age(saved.parent)
    remove_leftovers(saved)
    assert os.listdir(saved.parent) == ["model"]


def test_a_young_empty_folder_may_be_somebodys(saved: Path) -> None:
    """Its writer has made it and not locked it yet; an old one has no writer."""
    mine = saved.parent / ".model.abcdefg0.new"
    mine.mkdir()
    remove_leftovers(saved)
    assert mine.is_dir()
    age(saved.parent)
    remove_leftovers(saved)
    assert not mine.exists()


@pytest.mark.parametrize("when", [0.0, 2.0**33])
def test_a_writer_at_work_is_left_alone(saved: Path, when: float) -> None:
    """Whatever the clock says of its folder, and however often others come by."""
    mine = saved.parent / ".model.abcdefg0.new"
    mine.mkdir()
    os.utime(mine, (when, when))
    with locked(mine):
        remove_leftovers(saved)
        assert mine.is_dir()
    remove_leftovers(saved)
    assert not mine.exists()


@pytest.mark.parametrize(
    "name", [".model.old", ".model.backup.old", "model.abcdefg0.new", ".x.new"]
)
def test_what_is_not_a_writers_stays(saved: Path, name: str) -> None:
    """Folders of others, though their names look alike."""
    (saved.parent / name).mkdir()
    (saved.parent / name / "thesis.txt").write_text("ten years of work")
    age(saved.parent)
    write_folder(saved, second, overwrite=True)
    assert (saved.parent / name / "thesis.txt").exists()

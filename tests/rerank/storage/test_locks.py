"""Locks: one writer of a folder at a time, known before the work; nothing stays behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rerank.errors import FolderError
from rerank.storage.files import copy_folder
from rerank.storage.folder import output_folder, reserved

HOLDER = """
import sys
from pathlib import Path
from rerank.storage.folder import reserved
with reserved(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_at_once(tmp_path: Path) -> None:
    """In another process, while the first one holds it; afterwards the name is free again."""
    out = tmp_path / "models" / "model"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(FolderError, match="another job uses"), reserved(out):
            pass
        holder.communicate("")
    with reserved(out):
        pass
    assert list(out.parent.iterdir()) == []


def test_a_killed_holder_keeps_nothing(tmp_path: Path) -> None:
    """The system takes the lock of a killed process back; its file is in nobody's way."""
    out = tmp_path / "model"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
    assert [p.name for p in tmp_path.iterdir()] == [".model.lock"]
    with reserved(out):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    """No job can replace it there."""
    (tmp_path / "file").write_text("not a folder")
    with reserved(tmp_path / "file" / "model", to_read=True):
        pass


def test_what_a_job_would_not_replace_is_refused_before_its_work(tmp_path: Path) -> None:
    """Without `overwrite`; and the name is free again."""
    (tmp_path / "model").mkdir()
    with (
        pytest.raises(FolderError, match="exists; replace it with --overwrite"),
        output_folder(tmp_path / "model", overwrite=False, kind="a model"),
    ):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_lock_goes_with_an_error(tmp_path: Path) -> None:
    """A job that fails, or is interrupted, frees the name."""
    with pytest.raises(KeyboardInterrupt), reserved(tmp_path / "model"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Before the work, with the folder and the option to change."""
    (tmp_path / "file").write_text("not a folder")
    out = tmp_path / "file" / "model"
    with pytest.raises(FolderError, match=f"{out} cannot be written: .*--out"), reserved(out):
        pass


def test_a_folder_that_cannot_be_copied_is_one_sentence(tmp_path: Path) -> None:
    """About the first file that failed, whatever number of others did."""
    source = tmp_path / "source"
    source.mkdir()
    for name in "abc":
        (source / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match=r"target/\w cannot be written: .*No such file") as told:
        copy_folder(source, tmp_path / "target")
    assert "\n" not in str(told.value)
    assert str(told.value).count("cannot be written") == 1

"""Folders on disk: whole or not there, and refused when anything in them is not as written."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rerank.errors import FolderError
from rerank.storage import folder as store
from rerank.storage.files import write_file
from rerank.storage.folder import is_made_from, read_manifest, verify_folder, write_folder


def fill(folder: Path) -> dict[str, Any]:
    (folder / "calibrators.json").write_text('{"kind": "none"}')
    (folder / "index").mkdir()
    (folder / "index" / "data.bin").write_bytes(bytes(range(256)))
    return {"name": "first", "fingerprints": {"encoder": "abc"}}


def second(folder: Path) -> dict[str, Any]:
    (folder / "other.txt").write_text("two")
    return {"name": "second"}


def broken(folder: Path) -> dict[str, Any]:
    (folder / "half.txt").write_text("half")
    raise KeyboardInterrupt


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    write_folder(tmp_path / "model", fill)
    return tmp_path / "model"


def test_a_folder_is_read_back(saved: Path) -> None:
    """The manifest holds the caller's fields and hashlib's sha256 of every file below."""
    manifest = verify_folder(saved)
    assert manifest == read_manifest(saved)
    assert manifest["format_version"] == 5
    assert manifest["fingerprints"] == {"encoder": "abc"}
    assert set(manifest["files"]) == {"calibrators.json", "index/data.bin"}
    expected = hashlib.sha256(bytes(range(256))).hexdigest()
    assert manifest["files"]["index/data.bin"] == {"sha256": expected, "size": 256}
    assert os.listdir(saved.parent) == ["model"]


def test_overwriting_replaces_the_whole_folder(saved: Path) -> None:
    """Nothing of the old folder stays, inside or beside the new one."""
    with pytest.raises(FolderError, match="exists"):
        write_folder(saved, second)
    write_folder(saved, second, overwrite=True)
    assert verify_folder(saved)["name"] == "second"
    assert sorted(os.listdir(saved)) == ["manifest.json", "other.txt"]
    assert os.listdir(saved.parent) == ["model"]


def test_an_interruption_leaves_the_old_folder(saved: Path) -> None:
    """A fill that is interrupted changes nothing and leaves no rest behind."""
    with pytest.raises(KeyboardInterrupt):
        write_folder(saved, broken, overwrite=True)
    assert verify_folder(saved)["name"] == "first"
    with pytest.raises(KeyboardInterrupt):
        write_folder(saved.parent / "new", broken)
    assert os.listdir(saved.parent) == ["model"]


@pytest.mark.parametrize("step", [1, 2])
def test_a_rename_that_fails_leaves_the_old_folder(
    saved: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whichever of the two renames fails, the old folder stands under its name afterwards."""
    real, calls = os.rename, []

    def rename(a: Path, b: Path) -> None:
        calls.append(a)
        if len(calls) == step:
            raise OSError("disk")
        real(a, b)

    monkeypatch.setattr(store.os, "rename", rename)
    with pytest.raises(OSError, match="disk"):
        write_folder(saved, second, overwrite=True)
    assert verify_folder(saved)["name"] == "first"
    assert os.listdir(saved.parent) == ["model"]


def test_a_strangers_folder_is_never_deleted(tmp_path: Path) -> None:
    """A folder without our manifest, a file, and a link are refused even with overwrite."""
    stranger = tmp_path / "photos"
    stranger.mkdir()
    (stranger / "cat.jpg").write_text("cat")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(stranger)
    for path in (stranger, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(FolderError, match="not replaced"):
            write_folder(path, fill, overwrite=True)
    (stranger / "manifest.json").write_text('{"name": "an app"}')
    with pytest.raises(FolderError, match="not a folder of ours"):
        write_folder(stranger, fill, overwrite=True)
    assert (stranger / "cat.jpg").read_text() == "cat"


def test_a_file_put_into_our_folder_is_never_deleted(saved: Path) -> None:
    """A user's notes beside a model are not lost when the model is written again."""
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(FolderError, match=r"holds notes.txt.*move it away"):
        write_folder(saved, second, overwrite=True)
    assert (saved / "notes.txt").read_text() == "mine"
    (saved / "notes.txt").unlink()
    write_folder(saved, second, overwrite=True)
    assert verify_folder(saved)["name"] == "second"


def change(folder: Path) -> None:
    (folder / "index" / "data.bin").write_bytes(bytes(255) + b"x")


def grow(folder: Path) -> None:
    (folder / "index" / "data.bin").write_bytes(b"x")


def lose(folder: Path) -> None:
    (folder / "calibrators.json").unlink()


def add(folder: Path) -> None:
    (folder / "index" / "code.py").write_text("print()")


def link(folder: Path) -> None:
    (folder / "calibrators.json").rename(folder.parent / "kept")
    (folder / "calibrators.json").symlink_to(folder.parent / "kept")


def link_folder(folder: Path) -> None:
    (folder / "index").rename(folder.parent / "kept")
    (folder / "index").symlink_to(folder.parent / "kept")


def edit(**fields: Any) -> Any:
    def write(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, **fields}))

    return write


ENTRY = {"sha256": "0" * 64, "size": 1}


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (change, "index/data.bin is changed"),
        (grow, "index/data.bin has 1 bytes, expected 256"),
        (lose, "calibrators.json is missing"),
        (add, "index/code.py is not in the manifest"),
        (link, "calibrators.json is a link"),
        (link_folder, "index is a link"),
        (edit(files={"../secret": ENTRY}), "not a path within"),
        (edit(files={"/etc/passwd": ENTRY}), "not a path within"),
        (edit(files={"a\\b": ENTRY}), "not a path within"),
        (edit(files={"./a": ENTRY}), "not a path within"),
        (edit(files={"a": {"size": 1}}), "no sha256 and size for a"),
        (edit(files=[]), "lists no files"),
        (edit(format_version=6), "format version 6; this version reads 5: make"),
        (edit(format_version=True), "format version True"),
        (edit(name="other"), "manifest.json is changed"),
        (edit(digest=None), "manifest.json is changed"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "is not JSON"),
        (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
    ],
)
def test_a_damaged_folder_is_refused(saved: Path, damage: Any, sentence: str) -> None:
    """Whatever was done to a folder, verify says which file it was done to."""
    damage(saved)
    with pytest.raises(FolderError, match=sentence):
        verify_folder(saved)


@pytest.mark.parametrize("field", ["files", "format_version", "digest"])
def test_the_stores_own_fields_cannot_be_given(tmp_path: Path, field: str) -> None:
    """A fill cannot speak for the store."""
    with pytest.raises(FolderError, match=field):
        write_folder(tmp_path / "model", lambda folder: {field: 1})


def test_a_fill_that_leaves_a_link_or_a_manifest_is_refused(tmp_path: Path) -> None:
    """What could not be verified later is not written at all."""

    def linked(folder: Path) -> dict[str, Any]:
        (folder / "a").symlink_to("/")
        return {}

    def own(folder: Path) -> dict[str, Any]:
        (folder / "manifest.json").write_text("{}")
        return {}

    with pytest.raises(FolderError, match="a is a link"):
        write_folder(tmp_path / "model", linked)
    with pytest.raises(FolderError, match="written by the store"):
        write_folder(tmp_path / "model", own)
    assert os.listdir(tmp_path) == []


def test_a_file_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is UTF-8; a failure keeps the old bytes and leaves no temporary file."""
    path = tmp_path / "a.txt"
    write_file(path, "Błasiok")
    assert path.read_bytes() == "Błasiok".encode()
    write_file(path, b"\x00new")

    def fail(*_: Any) -> None:
        raise OSError("disk")

    monkeypatch.setattr(store.os, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        write_file(path, "newer")
    assert path.read_bytes() == b"\x00new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_made_from_the_same_is_known(tmp_path: Path) -> None:
    """All values must be the manifest's, and every file whole; else it is not the same."""
    out = tmp_path / "model"
    assert not is_made_from(out, {})
    write_folder(out, lambda folder: _fill(folder, {"key": 1, "other": [2]}))
    assert is_made_from(out, {"key": 1})
    assert is_made_from(out, {"key": 1, "other": [2]})
    assert not is_made_from(out, {"key": 2})
    assert not is_made_from(out, {"missing": None, "key": 2})
    (out / "file.txt").write_text("changed")
    assert not is_made_from(out, {"key": 1})


def _fill(folder: Path, manifest: dict[str, object]) -> dict[str, object]:
    (folder / "file.txt").write_text("content")
    return manifest


def test_a_faster_writer_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder that appears in the last moment stays, and the late one says so."""
    out, rename = tmp_path / "model", Path.rename

    def late(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        write_folder(out, second)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(FolderError, match="exists"):
        write_folder(out, fill)
    assert read_manifest(out)["name"] == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]

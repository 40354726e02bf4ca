"""Atomic, hashed, code-free folders: what has the final name is complete, or is not there. One job
at a time writes a folder: its name is locked from before the work until its end. And a working
folder: what runs share, and where each part of it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from rerank.errors import FolderError
from rerank.storage import files

FORMAT_VERSION = 5
"""Version of the written format; a reader accepts 1 (no digest), 2 (other names in a model folder),
3 and 4 (other features in a model folder), and refuses a newer one."""

DIGEST = "digest"  # the manifest's own hash, over all of its other fields
MANIFEST = "manifest.json"


def write_folder(
    path: str | Path,
    fill: Callable[[Path], Mapping[str, Any]],
    *,
    overwrite: bool = False,
    kind: str | None = None,
) -> dict[str, Any]:
    """Write a folder whole or not at all, and return its manifest.

    `fill(folder)` writes files into an empty temporary sibling and returns fields for the manifest,
    which adds `format_version`, `digest`, and `files`: relative path to sha256 and size. If the
    process ends, `path` stays as it was, or is put back by the next writer.

    Raises:
        FolderError: path exists and `overwrite` is False; it exists and is not a folder with a
            manifest of ours; `fill` returned a reserved field, or made a link.
    """
    path = Path(path)
    check_can_replace(path, overwrite=overwrite, kind=kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = files.beside(path, ".new")
    new.mkdir()
    try:
        with files.locked(new):
            manifest = _fill(new, fill, kind)
            check_can_replace(path, overwrite=overwrite, kind=kind)
            if path.exists():
                _swap(new, path)
            else:
                try:
                    new.rename(path)
                except OSError:
                    check_can_replace(path, overwrite=False)  # another writer was faster
                    raise
                files.sync(path.parent)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return json.loads(json.dumps(manifest))  # type: ignore[no-any-return]


def _fill(new: Path, fill: Callable[[Path], Mapping[str, Any]], kind: str | None) -> dict[str, Any]:
    extra = dict(fill(new))
    reserved = {"files", "format_version", DIGEST, *(["kind"] if kind else [])} & set(extra)
    if reserved:
        raise FolderError(f"the manifest's own fields cannot be given: {sorted(reserved)}")
    listed = {}
    for name, file in sorted(files.files_below(new).items()):
        if name == MANIFEST:
            raise FolderError(f"{MANIFEST} is written by the store, not by the caller")
        listed[name] = {"sha256": files.sha256_file(file), "size": file.stat().st_size}
        file.chmod(new.stat().st_mode & 0o666)  # as the umask has it
        files.sync(file)
    named = {"kind": kind} if kind else {}
    manifest = with_digest({"format_version": FORMAT_VERSION, **named, **extra, "files": listed})
    files.write_file(new / MANIFEST, json.dumps(manifest, indent=2, allow_nan=False) + "\n")
    for folder in [p for p in new.rglob("*") if p.is_dir()]:
        files.sync(folder)
    return manifest


def is_ours(path: str | Path) -> bool:
    """Whether a folder's manifest is one of this project: of any version, checked or not."""
    file = Path(path) / MANIFEST
    if file.is_symlink() or not file.is_file():
        return False
    try:
        manifest = files.parse_json(
            files.read_bytes(file, files.LARGEST_JSON, follow=False), str(file)
        )
    except FolderError:
        return False
    return isinstance(manifest, dict) and {"format_version", "files"} <= manifest.keys()


def read_manifest(path: str | Path, *, sha256: str | None = None) -> dict[str, Any]:
    """The checked manifest of a folder, whose hash is `sha256` if given; its files:
    `verify_folder`.

    Raises:
        FolderError: no manifest, another one than `sha256` says, not JSON, another format, or
            entries that are not a relative path within the folder with its sha256 and size.
    """
    file = Path(path) / MANIFEST
    if file.is_symlink() or not file.is_file():
        raise FolderError(f"{path} has no {MANIFEST}")
    try:
        content = files.read_bytes(file, files.LARGEST_JSON, follow=False)
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error}") from None
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise FolderError(f"{file} has sha256 {found}, expected {sha256}")
    manifest = files.parse_json(content, str(file))
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise FolderError(f"{file} is not a manifest of this project: it lists no files")
    version = manifest.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise FolderError(
            f"{file} has format version {version!r}; this version reads {FORMAT_VERSION}: make the "
            "folder anew, with the command that made it"
        )
    for name, entry in manifest["files"].items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\\" in name or str(parts) != name:
            raise FolderError(f"{file} names {name!r}, which is not a path within the folder")
        given = entry if isinstance(entry, dict) else {}
        if not isinstance(given.get("sha256"), str) or type(given.get("size")) is not int:
            raise FolderError(f"{file} has no sha256 and size for {name}")
    if with_digest(manifest) != manifest:
        raise FolderError(f"{file} is changed, its digest is not that of its fields")
    return manifest


def with_digest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with the digest of its other fields, replacing an earlier one."""
    fields = {key: value for key, value in manifest.items() if key != DIGEST}
    text = json.dumps(fields, sort_keys=True)
    return {**fields, DIGEST: hashlib.sha256(text.encode()).hexdigest()}


def verify_folder(path: str | Path, *, sha256: str | None = None) -> dict[str, Any]:
    """Check every file of a folder against its manifest, and return the manifest."""
    manifest = read_manifest(path, sha256=sha256)
    present = files.files_below(Path(path))
    present.pop(MANIFEST, None)
    for name, entry in manifest["files"].items():
        if name not in present:
            raise FolderError(f"{path}: {name} is missing")
        try:
            with files.regular(present[name], follow=False) as file:
                if (size := os.fstat(file.fileno()).st_size) != entry["size"]:
                    raise FolderError(f"{path}: {name} has {size} bytes, expected {entry['size']}")
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise FolderError(f"{path}: {name} cannot be read: {error}") from None
        if found != entry["sha256"]:
            raise FolderError(f"{path}: {name} is changed, its sha256 is not the manifest's")
    extra = sorted(set(present) - set(manifest["files"]))
    if extra:
        such = f"{extra[0]} is not in the manifest; remove it ({len(extra)} such)"
        raise FolderError(f"{path}: {such}")
    return manifest


def read_verified(
    path: str | Path, name: str, manifest: Mapping[str, Any], *, max_bytes: int = files.LARGEST_JSON
) -> bytes:
    """Return the bytes of a folder's file, checked against its manifest as they are read."""
    entry = manifest["files"].get(name)
    if entry is None:
        raise FolderError(f"{path}: its manifest lists no {name}")
    data = files.read_bytes(Path(path) / name, max_bytes, follow=False)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise FolderError(f"{path}: {name} is changed, its sha256 is not the manifest's")
    return data


def is_made_from(path: str | Path, made_from: Mapping[str, Any]) -> bool:
    """Whether `path` is a complete folder whose manifest contains all of `made_from`."""
    try:
        manifest = read_manifest(path)
        if any(manifest.get(key) != value for key, value in made_from.items()):
            return False
        verify_folder(path)
    except FolderError:
        return False
    return True


def _swap(new: Path, path: Path) -> None:
    """Move path away and rename new to path, then remove the old one; undo this if it fails."""
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    old = aside / path.name
    try:
        with files.locked(aside):
            path.rename(old)
            new.rename(path)
            files.sync(path.parent)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        if not old.exists():
            aside.rmdir()
        raise
    shutil.rmtree(aside)


def check_can_replace(path: Path, *, overwrite: bool, kind: str | None = None) -> None:
    """Raise what `write_folder` would; remove what killed writers left beside the folder."""
    files.remove_leftovers(path)
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise FolderError(f"{path} exists; replace it with --overwrite, or give another path")
    if path.is_symlink() or not path.is_dir():
        raise FolderError(f"{path} is not a folder, and is not replaced")
    try:
        manifest = read_manifest(path)
    except FolderError as error:
        refused = f"{path} is not a folder of ours, and is not replaced"
        raise FolderError(f"{refused}: {error}") from error
    if kind is not None and manifest.get("kind") != kind:
        raise FolderError(f"{path} is not {kind} but {manifest.get('kind')}, and is not replaced")
    if foreign := sorted(files.files_below(path).keys() - manifest["files"].keys() - {MANIFEST}):
        raise FolderError(
            f"{path} holds {foreign[0]}, which this project did not write ({len(foreign)} such); "
            "move it away, so that it is not lost"
        )


@contextmanager
def output_folder(path: Path, *, overwrite: bool, kind: str) -> Iterator[None]:
    """Reserve the name of a folder that a job writes; what would fail at the end fails now."""
    with reserved(path):
        check_can_replace(path, overwrite=overwrite, kind=kind)
        yield


@contextmanager
def reserved(path: Path, *, to_read: bool = False) -> Iterator[None]:
    """Reserve the name of a folder during the block; the lock is a hidden file beside it.

    A folder that is only read (`to_read`) has no lock if nothing can be written beside it.
    """
    lock_file = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, _ = files.open_locked(lock_file)
    except BlockingIOError:
        raise FolderError(
            f"another job uses {path}; wait for its end, or give another folder"
        ) from None
    except OSError as error:
        if to_read:
            yield
            return
        raise FolderError(
            f"{path} cannot be written: {error.strerror}; give another --out"
        ) from None
    try:
        yield
    finally:
        lock_file.unlink(missing_ok=True)
        os.close(handle)


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite database for SQLAlchemy and MLflow, whatever signs its path has."""
    try:
        from sqlalchemy.engine import URL
    except ImportError:
        return f"sqlite:///{path}"
    return URL.create("sqlite", database=str(path)).render_as_string()


class Workspace:
    """The parts of a working folder, whether they exist yet or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.indexes = path / "index"  # a folder for each indexed corpus
        self.scores = path / "scores.sqlite"  # of the cross-encoder, shared by all runs
        self.checkpoints = path / "checkpoints"  # a folder for each unfinished training run
        self.database = path / "mlflow.db"  # MLflow's, of runs and registered models
        self.artifacts = path / "mlartifacts"  # the files of the runs in it

    @property
    def tracking_uri(self) -> str:
        """MLflow's name for `database`."""
        return sqlite_url(self.database.resolve())

    def tracked(self, key: str) -> dict[str, Any] | None:
        """What `note_tracked` stored for a folder by its manifest's sha256; None if it was not
        tracked.
        """
        try:
            run = json.loads(self._note(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return run if isinstance(run, dict) else None

    def note_tracked(self, key: str, run: Mapping[str, Any]) -> None:
        """Store the MLflow run that has the folder whose manifest has the sha256 `key`."""
        note = self._note(key)
        note.parent.mkdir(parents=True, exist_ok=True)
        files.write_file(note, json.dumps(dict(run)))

    def _note(self, key: str) -> Path:
        return self.path / "tracked" / f"{key}.json"

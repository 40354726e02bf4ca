"""Atomic, hashed, code-free folders: what stands under the final name is whole, or is not there.

Bytes in, bytes on disk, each file's sha256 in `manifest.json`. It knows nothing of what the files
mean; whoever fills a folder adds fields of its own to the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

FORMAT_VERSION = 1
"""Version of the manifest's own layout; a reader refuses a newer one."""

MANIFEST = "manifest.json"


class StoreError(ValueError):
    """A folder that is not what its manifest says, or that must not be replaced."""


def sha256_file(path: str | Path) -> str:
    """Return the sha256 of a file's bytes as 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: str | Path, data: bytes | str | Iterable[str]) -> None:
    """Write a file whole or not at all: a temporary sibling, fsync, then rename. Text is UTF-8.

    Parts of a text are written as they come.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in [data] if isinstance(data, (bytes, str)) else data:
                file.write(part.encode() if isinstance(part, str) else part)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write_json(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write plain JSON values, indented; for `fill` of `write_folder`, which makes it durable."""
    text = json.dumps(value, indent=2, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def write_folder(
    path: str | Path,
    fill: Callable[[Path], Mapping[str, Any]],
    *,
    overwrite: bool = False,
    kind: str | None = None,
) -> dict[str, Any]:
    """Write a folder whole or not at all, and return its manifest.

    `fill(folder)` writes files into an empty temporary sibling and returns fields for the
    manifest, which adds `format_version` and `files`: relative path to sha256 and size. An
    exception, or an end of the process, leaves whatever stood at `path` as it was; the one moment
    between the two renames of a replacement leaves the old folder beside it, under a hidden name
    that ends in `.old`.

    Raises:
        StoreError: path exists and `overwrite` is False; it exists and is no folder with a
            manifest of ours; `fill` returned `files` or `format_version`, or made a link.
    """
    path = Path(path)
    refuse_to_replace(path, overwrite=overwrite, kind=kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent))
    try:
        extra = dict(fill(new))
        taken = {"files", "format_version", *(["kind"] if kind else [])} & set(extra)
        if taken:
            raise StoreError(f"the manifest's own fields cannot be given: {sorted(taken)}")
        files = {}
        for name, file in sorted(_files(new).items()):
            if name == MANIFEST:
                raise StoreError(f"{MANIFEST} is written by the store, not by the caller")
            files[name] = {"sha256": sha256_file(file), "size": file.stat().st_size}
            _sync(file)
        named = {"kind": kind} if kind else {}
        manifest = {"format_version": FORMAT_VERSION, **named, **extra, "files": files}
        write_file(new / MANIFEST, json.dumps(manifest, indent=2, allow_nan=False) + "\n")
        for folder in [p for p in new.rglob("*") if p.is_dir()]:
            _sync(folder)
        new.chmod(0o777 & ~_umask())
        refuse_to_replace(path, overwrite=overwrite, kind=kind)
        if path.exists():
            _swap(new, path)
        else:
            new.rename(path)
            _sync(path.parent)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return json.loads(json.dumps(manifest))  # type: ignore[no-any-return]


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return the manifest of a folder, its own shape checked, its files not (see `verify_folder`).

    Raises:
        StoreError: no manifest, not JSON, a newer format, or entries that are not a relative path
            within the folder with its sha256 and size.
    """
    file = Path(path) / MANIFEST
    if file.is_symlink() or not file.is_file():
        raise StoreError(f"{path} has no {MANIFEST}")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(f"{file} is not JSON: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise StoreError(f"{file} is not a manifest of this project: it lists no files")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise StoreError(
            f"{file} has format version {manifest.get('format_version')!r}; "
            f"this version reads {FORMAT_VERSION}"
        )
    for name, entry in manifest["files"].items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\\" in name or str(parts) != name:
            raise StoreError(f"{file} names {name!r}, which is not a path within the folder")
        if not isinstance(entry, dict) or not {"sha256", "size"} <= set(entry):
            raise StoreError(f"{file} has no sha256 and size for {name}")
    return manifest


def verify_folder(path: str | Path) -> dict[str, Any]:
    """Check every file of a folder against its manifest, and return the manifest.

    Raises:
        StoreError: as `read_manifest`; a file that is missing, changed, a link, or not listed.
    """
    manifest = read_manifest(path)
    found = _files(Path(path))
    found.pop(MANIFEST, None)
    for name, entry in manifest["files"].items():
        if name not in found:
            raise StoreError(f"{path}: {name} is missing")
        size = found[name].stat().st_size
        if size != entry["size"]:
            raise StoreError(f"{path}: {name} has {size} bytes, expected {entry['size']}")
        if sha256_file(found[name]) != entry["sha256"]:
            raise StoreError(f"{path}: {name} is changed, its sha256 is not the manifest's")
    extra = sorted(set(found) - set(manifest["files"]))
    if extra:
        raise StoreError(
            f"{path}: {extra[0]} is not in the manifest; take it away ({len(extra)} such)"
        )
    return manifest


def is_made_from(path: str | Path, made_from: Mapping[str, Any]) -> bool:
    """Whether a whole folder stands at `path` whose manifest holds all that is in `made_from`."""
    try:
        manifest = read_manifest(path)
        if any(manifest.get(key) != value for key, value in made_from.items()):
            return False
        verify_folder(path)
    except StoreError:
        return False
    return True


def _files(folder: Path) -> dict[str, Path]:
    """Return every regular file below a folder by its relative posix path; refuse all else."""
    result = {}
    for entry in folder.rglob("*"):
        name = entry.relative_to(folder).as_posix()
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            raise StoreError(f"{folder}: {name} is a link or no regular file")
        if entry.is_file():
            result[name] = entry
    return result


def _swap(new: Path, path: Path) -> None:
    """Rename path away and new to path, then remove the old one; undo where that fails."""
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
    old = aside / path.name
    try:
        path.rename(old)
        new.rename(path)
        _sync(path.parent)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        if not old.exists():
            aside.rmdir()
        raise
    shutil.rmtree(aside)


def refuse_to_replace(path: Path, *, overwrite: bool, kind: str | None = None) -> None:
    """Raise what `write_folder` would: early, before the work that would be lost.

    Raises:
        StoreError: path exists and `overwrite` is False, or is no folder with a manifest of ours,
            or is one of another kind.
    """
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise StoreError(f"{path} exists; allow overwriting, or give another path")
    if path.is_symlink() or not path.is_dir():
        raise StoreError(f"{path} is not a folder, and is not replaced")
    try:
        found = read_manifest(path)
    except StoreError as error:
        raise StoreError(f"{path} is not a folder of ours, and is not replaced: {error}") from error
    if kind is not None and found.get("kind") != kind:
        raise StoreError(f"{path} is not {kind} but {found.get('kind')}, and is not replaced")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""The cache of models on this machine: what is exported or unpacked once, and checked when read."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rerank.errors import FolderError, InputError
from rerank.storage.files import PACKAGE, clear_away, file_state, files_below, sha256_file
from rerank.storage.folder import MANIFEST, read_manifest, write_folder

logger = logging.getLogger(__name__)

READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)  # numbers of an OSError
OTHER_CACHE = (
    "name a folder that can be written to in RERANK_CACHE, or make a model that needs none with "
    "`rerank model export`"
)
MODEL = "model"  # the unpacked model, beside the manifest of its hashes

Opened = TypeVar("Opened")


def cache_folder() -> Path:
    """The folder `models` in `$RERANK_CACHE`, or in the user's cache; made, for its user only."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        own = os.environ.get("RERANK_CACHE") or Path(base or Path.home() / ".cache", PACKAGE)
    except RuntimeError:
        raise InputError(f"this user has no home folder to keep models in; {OTHER_CACHE}") from None
    folder = Path(own, "models")
    try:
        if folder.is_symlink() and not folder.exists():
            logger.warning("%s is made again: it is a link to nothing", folder)
            clear_away(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        obstacle = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        raise InputError(
            f"{folder} cannot be made: {obstacle} is not a folder. Move it away, or name another "
            "folder in RERANK_CACHE"
        ) from None
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        raise InputError(f"{folder} cannot be made: {error.strerror}; {OTHER_CACHE}") from None
    if hasattr(os, "geteuid"):
        state = folder.stat()
        if state.st_uid not in (0, os.geteuid()) or state.st_mode & 0o022:
            raise InputError(
                f"{folder} belongs to user {state.st_uid} with mode {state.st_mode & 0o777:o}; "
                "expected yours, and 700. Remove it, or name another folder in RERANK_CACHE"
            )
    return folder


def made_once(
    home: Path, fill: Callable[[Path], Mapping[str, Any]], opened: Callable[[Path], Opened]
) -> Opened:
    """What `opened` gives of the folder `home`; made by `fill` where that raises an error."""
    if os.path.lexists(home):
        try:
            return opened(home)
        except Exception as error:  # of a runtime, which has many
            logger.warning("%s is made again: %s", home, error)
        clear_away(home)
    try:
        with suppress(FolderError):  # another process was faster
            write_folder(home, fill)
    except OSError as error:
        raise OSError(
            f"{home.parent}: no model can be kept there: {error}; {OTHER_CACHE}"
        ) from error
    try:
        return opened(home)
    except Exception as error:
        clear_away(home)
        raise OSError(f"{home} cannot be opened, although it was just made: {error}") from error


def hashed(path: Path) -> str:
    """The file's sha256, computed once per process unless the file changes."""
    return _hashed(path, *file_state(path))


@lru_cache(maxsize=256)
def _hashed(path: Path, *_state: int) -> str:
    return sha256_file(path)


def unpacked_once(home: Path, fill: Callable[[Path], None]) -> Path:
    """The model folder in `home` that `fill` writes; made once, and again if it changed."""

    def opened(folder: Path) -> Path:
        written, present = read_manifest(folder)["files"], files_below(folder)
        del present[MANIFEST]
        for name in sorted(written.keys() | present.keys()):
            entry = written.get(name, {})
            if name not in present or hashed(present[name]) != entry.get("sha256"):
                raise FolderError(f"{name} is changed")
        return folder / MODEL

    def made(new: Path) -> dict[str, Any]:
        fill(new / MODEL)
        return {}

    return made_once(home, made, opened)

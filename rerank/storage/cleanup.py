"""What a killed writer leaves beside a folder: found and removed by the next writer.

A writer holds a lock on its temporary folder; the system releases it when the process ends, however
it ends. It knows nothing of what a folder holds.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rerank.storage.file_lock import lock

MIN_AGE = 60.0
"""Seconds: the writer of a younger empty folder may not have locked it yet."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder while this process works in it, if the system has such locks."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, wait=True)  # a cleaner may hold it for an instant
        yield
    finally:
        os.close(handle)


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of the folder `path` left beside it.

    If a writer was killed between the two renames of a replacement, so that `path` is missing, the
    old folder is put back. A folder locked by a writer is left alone.
    """
    if not path.parent.is_dir():
        return
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.(new|old)")
    for name in os.listdir(path.parent):
        leftover = path.parent / name
        if not ours.fullmatch(name) or leftover.is_symlink() or not leftover.is_dir():
            continue
        try:
            handle = os.open(leftover, os.O_RDONLY)
        except OSError:
            continue
        try:
            with suppress(BlockingIOError):
                if lock(handle):
                    _clear(leftover, path)
        finally:
            os.close(handle)


def _clear(leftover: Path, path: Path) -> None:
    old_folder = leftover / path.name
    abandoned = any(leftover.iterdir())  # a writer locks its folder before it writes there
    if (
        leftover.suffix == ".old"
        and old_folder.is_dir()
        and not path.exists()
        and not path.is_symlink()
    ):
        old_folder.rename(path)
    if abandoned or abs(time.time() - leftover.stat().st_mtime) >= MIN_AGE:
        shutil.rmtree(leftover, ignore_errors=True)

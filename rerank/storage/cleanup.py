"""What a killed writer leaves beside a folder: found, and cleared away by the next one.

A writer holds a lock on its temporary folder, which the system takes back when the process ends,
however it ends. It knows nothing of what a folder holds.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEAST_AGE = 60.0
"""Seconds: a younger empty folder may be one whose writer has not locked it yet."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Say, for the while, that this process is at work in a folder, where that can be said."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def remove_leftovers(path: Path) -> None:
    """Clear away what killed writers of the folder `path` left beside it.

    Where one was killed between the two renames of a replacement, so that nothing stands at
    `path`, the folder that stood there is put back. A folder that a writer holds is left alone.
    """
    if not path.parent.is_dir():
        return
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.(new|old)")
    for name in os.listdir(path.parent):
        left = path.parent / name
        if not ours.fullmatch(name) or left.is_symlink() or not left.is_dir():
            continue
        try:
            handle = os.open(left, os.O_RDONLY)
        except OSError:
            continue
        try:
            if _lock(handle):
                _clear(left, path)
        finally:
            os.close(handle)


def _clear(left: Path, path: Path) -> None:
    before = left / path.name
    nobodys = any(left.iterdir())  # a writer locks its folder before it puts anything there
    if left.suffix == ".old" and before.is_dir() and not path.exists() and not path.is_symlink():
        before.rename(path)
    if nobodys or abs(time.time() - left.stat().st_mtime) >= LEAST_AGE:
        shutil.rmtree(left, ignore_errors=True)


def _lock(handle: int) -> bool:
    """Whether the lock is ours now; without locks of this kind, it never is."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True

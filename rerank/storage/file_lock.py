"""Locks on open files and folders, and what a killed writer leaves beside a folder.

The system releases a lock when the process ends, however it ends. A writer locks its temporary
folder; the next writer removes one that nobody holds.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def lock(handle: int, *, wait: bool = False) -> bool:
    """Whether this process now holds the lock of an open file or folder; closing it releases it.

    False on a system or a file system without such locks.

    Raises:
        BlockingIOError: another process holds it; not with `wait`, which waits for its release.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except (ImportError, OSError):
        return False
    return True


def open_locked(path: Path) -> tuple[int, bool]:
    """An open and locked file, made if there is none; and whether its file system has locks.

    A file that its last holder removed meanwhile is opened anew.

    Raises:
        BlockingIOError: another process holds its lock.
        FileNotFoundError: its folder is missing.
    """
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            locked = lock(handle)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle, locked
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


MIN_AGE = 60.0  # seconds: the writer of a younger empty folder may not have locked it yet


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
    """Remove what killed writers of the folder `path` left beside it, but for locked folders.

    If `path` is missing, between the two renames of a replacement, the old folder is put back.
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
    missing = not path.exists() and not path.is_symlink()
    if leftover.suffix == ".old" and old_folder.is_dir() and missing:
        old_folder.rename(path)
    if abandoned or abs(time.time() - leftover.stat().st_mtime) >= MIN_AGE:
        shutil.rmtree(leftover, ignore_errors=True)

"""Locks on open files. The system releases them when the process ends, however it ends."""

from __future__ import annotations

import os
from contextlib import suppress
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

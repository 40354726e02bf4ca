"""Locks on open files. The system releases them when the process ends, however it ends."""

from __future__ import annotations


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

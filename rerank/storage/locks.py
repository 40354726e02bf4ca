"""One writer at a time: a lock on the name of a folder that a job will write at its end.

The system takes the lock back when the process ends, however it ends. It knows nothing of jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rerank.errors import FolderError


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Reserve the name of a folder, for the while; the lock is a hidden file beside it.

    So a job that could not write its result is refused before its work.

    Raises:
        FolderError: nothing can be written beside `path`, or another job has reserved it.
    """
    lock = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _open(lock)
    except BlockingIOError:
        raise FolderError(
            f"another job is writing {path}; wait for its end, or give another --out"
        ) from None
    except OSError as error:
        raise FolderError(
            f"{path} cannot be written: {error.strerror}; give another --out"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _open(lock: Path) -> int:
    """An open and locked file; BlockingIOError where another holds it."""
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            _lock(handle)
            if os.path.samestat(os.fstat(handle), lock.stat()):
                return handle
        except FileNotFoundError:
            pass  # its last holder has taken it away between the two lines: open it anew
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int) -> None:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except (ImportError, OSError):
        return  # a system, or a file system, without such locks

"""One job at a time per folder: a lock on its name, from before the work until its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rerank.errors import FolderError
from rerank.storage.file_lock import open_locked
from rerank.storage.folder import check_can_replace


@contextmanager
def output_folder(path: Path, *, overwrite: bool, kind: str) -> Iterator[None]:
    """Reserve the name of a folder that a job writes; what would fail at the end fails now.

    Raises:
        FolderError: as `reserved`; or `path` exists, and is not to be replaced.
    """
    with reserved(path):
        check_can_replace(path, overwrite=overwrite, kind=kind)
        yield


@contextmanager
def reserved(path: Path, *, to_read: bool = False) -> Iterator[None]:
    """Reserve the name of a folder during the block; the lock is a hidden file beside it.

    A folder that is only read (`to_read`) has no lock if nothing can be written beside it.

    Raises:
        FolderError: nothing can be written beside `path`, or another job has reserved it.
    """
    lock_file = path.parent / f".{path.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, _ = open_locked(lock_file)
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

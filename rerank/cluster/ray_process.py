"""The import of Ray, and a guard for one that we start: when this process ends, Ray's end too.

Ray leaves workers and agents behind. The guard is a process that reads a pipe; when the other end
is gone, it kills the processes that have files open in Ray's folder (as /proc says), and removes
it. This file imports only the standard library, until Ray is asked for.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

PROC = Path("/proc")
SENDS_STATISTICS = "RAY_USAGE_STATS_ENABLED"
LISTENS_EVERYWHERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # despite its name it holds on Linux too


def ray_module() -> Any:
    """The module `ray` with `ray.data`: it sends no statistics, and listens on loopback only,
    unless RAY_ADDRESS names a cluster, or the environment, or an earlier import of Ray decides.
    """
    os.environ.setdefault(SENDS_STATISTICS, "0")
    if not os.environ.get("RAY_ADDRESS") and LISTENS_EVERYWHERE not in os.environ:
        os.environ[LISTENS_EVERYWHERE] = "0"
        if "ray" in sys.modules:
            logger.warning(
                "a Ray that is started here listens on all network interfaces, as Ray was imported "
                "before; to prevent it, set %s=0 before Ray's import",
                LISTENS_EVERYWHERE,
            )
    import ray
    import ray.data

    return ray


@contextmanager
def guarded() -> Iterator[str]:
    """A new folder for Ray's files; its sockets need a short path. Removed with the processes."""
    folder = tempfile.mkdtemp(prefix="rerank-ray-", dir=os.environ.get("RAY_TMPDIR", "/tmp"))
    guard = subprocess.Popen(
        [sys.executable, "-I", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        yield folder
    finally:
        guard.stdin.close()
        guard.wait()


def users(folder: Path, *, but: int = 0) -> set[int]:
    """The ids of other processes that have files open in a folder, except `but`."""
    ids = set()
    inside = f"{folder}{os.sep}"
    for process in PROC.iterdir() if PROC.is_dir() else ():
        if not process.name.isdecimal() or int(process.name) in (os.getpid(), but):
            continue
        with suppress(OSError):  # it has ended, or is another user's
            for handle in (process / "fd").iterdir():
                with suppress(OSError):
                    if str(handle.readlink()).startswith(inside):
                        ids.add(int(process.name))
    return ids


def main(folder: Path) -> None:
    """Wait until the starting process closes the pipe; kill the processes that use the folder."""
    parent = os.getppid()
    sys.stdin.buffer.read()
    while alive := users(folder, but=parent):  # they may start others until they are dead
        for process in alive:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

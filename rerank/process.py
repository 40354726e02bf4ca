"""What this process may use: cores, and by the user's choice a device and the code of models.

All that computes asks here; it works in as many threads or processes as there are cores.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import ceil
from pathlib import Path, PurePosixPath
from threading import active_count
from typing import Any, TypeVar

from rerank.errors import InputError, optional

CORES = "RERANK_CORES"  # environment variable: for several processes that share a machine
DEVICE = "RERANK_DEVICE"
TRUST = "RERANK_TRUST_REMOTE_CODE"
AUTO = "auto"
CGROUPS = Path("/sys/fs/cgroup")  # where Linux shows control groups

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use: the number in `RERANK_CORES`, else what its affinity and the
    CPU quotas of its control groups allow, as in a container.

    Raises:
        InputError: the variable holds something else than a whole number from 1 up.
    """
    setting = os.environ.get(CORES, "")
    if setting:
        if not setting.isdecimal() or not int(setting):
            raise InputError(f"{CORES} should be a whole number from 1 up, got {setting!r:.80}")
        return int(setting)
    if hasattr(os, "sched_getaffinity"):
        return min([len(os.sched_getaffinity(0)), *_own_quotas()])
    return os.cpu_count() or 1


@cache
def _own_quotas() -> list[int]:
    return list(quotas())


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """The result for each item, in their order; in the calling thread if one thread is enough."""
    threads = min(threads, len(items))
    if threads < 2:
        return list(map(function, items))
    from concurrent.futures import ThreadPoolExecutor  # heavy, for a command's help

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within this context, BLAS multiplies in the calling thread alone; a decorator, too.

    The numbers of a fit depend on the count of its threads: so they are the same on any machine.
    """
    with optional():
        import scipy.linalg  # noqa: F401  # loads its own BLAS, which is not limited otherwise
        from threadpoolctl import threadpool_limits
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def in_processes(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The result for each item, in their order, in as many processes as `cores`.

    The others are forks of this one, without bars, on Linux alone, and only if it has no other
    threads, whose locks a fork would keep for ever.
    """
    count = min(cores(), len(items))
    if count < 2 or sys.platform != "linux" or active_count() > 1:
        return list(map(function, items))
    from multiprocessing import get_context

    context = get_context("fork")
    results: list[Any] = [None] * len(items)

    def work(share: slice, pipe: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # end without a word
        sys.stderr = io.StringIO()
        pipe.send(list(map(function, items[share])))

    started = []
    try:
        for number in range(1, count):
            share, (mine, theirs) = slice(number, None, count), context.Pipe(duplex=False)
            process = context.Process(target=work, args=(share, theirs), daemon=True)
            process.start()
            theirs.close()
            started.append((process, share, mine))
        results[::count] = map(function, items[::count])
        for _, share, mine in started:
            try:
                results[share] = mine.recv()
            except EOFError:  # it failed: here it raises, or needs less memory
                results[share] = map(function, items[share])
    finally:
        for process, _, mine in started:
            mine.close()
            process.kill()
            process.join()
    return results


def quotas(groups: Path = Path("/proc/self/cgroup"), mounts: Path = CGROUPS) -> Iterator[int]:
    """Cores by the CPU quotas of this process' control groups and of those around them, rounded up.

    In a container the path of a group may be the host's; what is mounted is then the group itself.
    """
    try:
        lines = groups.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, place = line.split(":", 2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        # version 1 has two files in a folder for its kinds, version 2 one with both numbers
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if kinds else ("cpu.max",)
        inner = PurePosixPath(place)
        for mount in (mounts / kinds, mounts / ("cpu" if kinds else "unified")):
            for group in (inner, *inner.parents):
                folder = mount / group.relative_to("/")
                with suppress(OSError, ValueError, ZeroDivisionError):  # none, or "max"
                    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
                    quota, period = map(int, " ".join(texts).split())
                    if quota > 0:
                        yield ceil(quota / period)


def device() -> str:
    """Where torch runs: the choice (an InputError if it is not here), the first GPU, or cpu."""
    with optional():
        import torch
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    there = ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
    chosen = os.environ.get(DEVICE) or AUTO
    found = {AUTO: [*gpus, "cpu"][0], "cuda": "cuda:0"}.get(chosen, chosen)
    if found not in there:
        raise InputError(
            f"`device` (--device, {DEVICE}) is {chosen!r:.80}, and torch has {', '.join(there)} "
            f"here; expected one of these, or {AUTO}"
        )
    return found


@contextmanager
def chosen(place: str, *, trust: bool) -> Iterator[None]:
    """Choose a device and trust, for a block and the processes that it starts; "", False: as is."""
    made = {DEVICE: place, TRUST: "1" if trust else ""}
    before = {name: os.environ.get(name, "") for name in made}
    os.environ.update({name: value for name, value in made.items() if value})
    try:
        if place not in ("", AUTO, "cpu"):
            device()
        yield
    finally:
        os.environ.update(before)


def trusted() -> bool:
    """Whether the code of models may run: `RERANK_TRUST_REMOTE_CODE` (--trust-remote-code)."""
    return os.environ.get(TRUST, "") == "1"


def local() -> dict[str, Any]:
    """How a library opens a model's folder: without a network, and without asking on a terminal."""
    return {"local_files_only": True, "trust_remote_code": trusted()}

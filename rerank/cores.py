"""How many cores this process may use, and work in as many threads.

All that computes asks here: networks in ONNX Runtime and torch, and products with the vectors of an
index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from math import ceil
from pathlib import Path, PurePosixPath
from typing import TypeVar

from rerank.errors import InputError

CORES = "RERANK_CORES"  # environment variable: for several processes that share a machine
CGROUPS = Path("/sys/fs/cgroup")  # where Linux shows control groups

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use: the number in `RERANK_CORES`, else all that it is given.

    That is what its affinity and the CPU quotas of its control groups allow, as in a container.

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
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


def quotas(groups: Path = Path("/proc/self/cgroup"), mounts: Path = CGROUPS) -> Iterator[int]:
    """Cores by the CPU quotas of this process' control groups and of those around them, rounded up.

    In a container the path of a group may be the host's; what is mounted is then the group itself.
    """
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
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
                with suppress(OSError, ValueError):  # no such group, or no quota: "max"
                    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
                    quota, period = map(int, " ".join(texts).split())
                    if quota > 0:
                        yield ceil(quota / period)

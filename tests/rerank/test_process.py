"""Cores: how many there are, and that all that computes keeps to them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import current_thread

import numpy as np
import pytest
from processes import run_python
from threadpoolctl import threadpool_limits

from rerank.errors import InputError
from rerank.process import CORES, cores, in_threads, quotas
from rerank.retrieval.dense import product

THREADS = """
import os, sys
import numpy as np
from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import open_tokenizer
from rerank.retrieval.dense import product

def spent():
    tasks = os.listdir("/proc/self/task")
    return {task: open(f"/proc/self/task/{task}/schedstat").read().split()[0] for task in tasks}

def quiet():  # BLAS's threads spin for a while after they were started, and then sleep
    others = [task for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    stats = [open(f"/proc/self/task/{task}/stat").read() for task in others]
    return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)

vectors = np.ones((20_000, 384), dtype=np.float32)
tokenizer = open_tokenizer(resolve("minilm"), max_length=64)
while not quiet():
    pass
before = spent()
product(vectors, vectors[0])
tokenizer(["the median of a sample"] * 50)
after = spent()
print([task for task in after if after[task] != before.get(task) and int(task) != os.getpid()])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_with_one_core_no_other_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of BLAS, which exist from NumPy's import on, nor the tokenizer's, nor ours."""
    monkeypatch.setenv(CORES, "1")
    for name in ("TOKENIZERS_PARALLELISM", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)  # as for a user
    assert (os.cpu_count() or 1) == 1 or run_python(THREADS).strip() == "[]"


PROCESSES = """
import os
from threadpoolctl import threadpool_info
from rerank.process import in_processes, one_blas_thread

def one(item):
    if item == "killed" and os.getpid() != here:
        os.abort()
    return item, os.getpid()

here = os.getpid()
with one_blas_thread():
    counts = {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}
found = in_processes(one, range(5)), in_processes(one, ["here", "killed"])
print(counts == {1}, *([(item, pid == here) for item, pid in part] for part in found))
in_processes(lambda item: 1 / item, [1, 0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_processes_give_results_in_order_and_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed one had to do is done here; what fails, fails here; BLAS has one thread."""
    monkeypatch.setenv(CORES, "2")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")  # which the tests set, and no user
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_python(PROCESSES)
    shared = [(0, True), (1, False), (2, True), (3, False), (4, True)]
    expected = f"True {shared} {[('here', True), ('killed', True)]}"
    assert run_python(PROCESSES.rpartition("in_processes")[0]).strip() == expected


@pytest.mark.parametrize("count", ["1", "2", "5"])
@pytest.mark.parametrize(
    "shape",
    [(0, 384), (1, 384), (25, 384), (1001, 384), (777, 768), (13, 1536), (9, 4), (20_003, 384)],
)
def test_a_product_is_that_of_one_thread_of_blas(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], count: str
) -> None:
    """To the bit, whatever the number of our threads; that of BLAS's own differs in some rows."""
    monkeypatch.setenv(CORES, count)
    numbers = np.random.default_rng(0)
    vectors = numbers.standard_normal(shape, dtype=np.float32)
    query = numbers.standard_normal(shape[1], dtype=np.float32)
    with threadpool_limits(1):
        expected = vectors @ query
    assert product(vectors, query).tobytes() == expected.tobytes()


def test_a_product_of_very_wide_vectors_is_right() -> None:
    numbers = np.random.default_rng(0)
    vectors = numbers.standard_normal((30, 4096))
    np.testing.assert_allclose(product(vectors, vectors[3]), vectors @ vectors[3], atol=1e-10)


def test_threads_are_started_only_for_several_items() -> None:
    """The results are in the order of the items."""
    assert in_threads(lambda _: current_thread(), [1], 4) == [current_thread()]
    assert in_threads(lambda _: current_thread(), [1, 2], 1) == [current_thread()] * 2
    assert current_thread() not in in_threads(lambda _: current_thread(), [1, 2], 2)
    assert in_threads(str, range(100), 3) == [*map(str, range(100))]


@pytest.mark.parametrize("setting", ["0", "2.0", "two", "-1"])
def test_a_number_of_cores_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """It was set for a reason, so all cores would be a surprise."""
    monkeypatch.setenv(CORES, setting)
    with pytest.raises(InputError, match=f"{CORES} should be a whole number from 1 up"):
        cores()
    monkeypatch.setenv(CORES, "3")
    assert cores() == 3


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000"}, []),
        ("0::/", {"cpu.max": "150000 100000"}, [2]),
        ("0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "800000 100000"}, [8, 1]),
        ("0::/of/the/host", {"cpu.max": "300000 100000"}, [3]),
        ("0::/a", {"unified/a/cpu.max": "200000 100000"}, [2]),
        ("4:cpu,cpuacct:/a", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000"}, [3]),
        ("4:cpu,cpuacct:/a", {"cpu/cpu.cfs_quota_us": "100000"}, [1]),
        ("1:cpu:/a\n0::/", {"cpu/a/cpu.cfs_quota_us": "-1"}, []),
        ("5:cpuset:/a", {"cpuset/a/cpu.cfs_quota_us": "100000"}, []),
    ],
)
def test_quotas_of_control_groups_bound_the_cores(
    tmp_path: Path, groups: str, files: dict[str, str], expected: list[int]
) -> None:
    """Of version 1 and 2, of the own group and those around it, rounded up."""
    for name, text in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        if path.name == "cpu.cfs_quota_us":
            path.with_name("cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cgroup").write_text(f"{groups}\n")
    given = list(quotas(tmp_path / "cgroup", tmp_path / "mounted"))
    assert list(dict.fromkeys(given)) == expected
    assert list(quotas(tmp_path / "none", tmp_path)) == []


def test_a_control_group_may_have_any_name_and_no_period(tmp_path: Path) -> None:
    """Its name is bytes, as that of any folder, and what is no quota bounds nothing."""
    groups = tmp_path / "cgroup"
    groups.write_bytes(b"0::/a\xff\n")
    inner = tmp_path / os.fsdecode(b"a\xff")
    inner.mkdir()
    (inner / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "cpu.max").write_text("100000 0\n")
    assert list(quotas(groups, tmp_path)) == [2]

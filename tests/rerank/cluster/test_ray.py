"""Rescoring on Ray: a pool of two actors on this machine gives the bytes of the local engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rerank import cluster
from rerank.assessment.model import CalibratedReranker
from rerank.batch.job import rescore
from rerank.batch.rows import CHUNK_ROWS
from rerank.cluster.ray_process import LISTENS_EVERYWHERE, ray_module, users
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError, RerankError, RetrieverError
from rerank.inference.score_cache import ScoreCache
from rerank.storage.folder import Workspace

ray = pytest.importorskip("ray")

Run = Any  # the session's run, see conftest


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder, cache=ScoreCache(Workspace(run.work).scores))


@pytest.mark.parametrize(
    ("actors", "on_gpus", "count", "each"),
    [
        (None, True, 2, 1.0),
        (1, True, 1, 1.0),
        (3, True, 3, 0.5),
        (5, True, 5, 1 / 3),
        (None, False, 4, None),
        (3, False, 3, None),
    ],
)
def test_actors_reserve_gpus_where_the_model_runs_on_them(
    actors: int | None, *, on_gpus: bool, count: int, each: float | None
) -> None:
    """Of two GPUs each actor has one, or a share such that all find room."""
    pool = cluster._pool([{"CPU": 16.0, "GPU": 2.0}], actors, 100, on_gpus=on_gpus)
    assert (pool["actors"], pool.get("num_gpus")) == (count, each)
    if each:
        assert 2 * int(1 / each + 1e-9) >= count
    assert cluster._pool([{"CPU": 16.0}], actors, 100, on_gpus=on_gpus).get("num_gpus") is None


@pytest.mark.parametrize(
    ("machines", "actors", "count", "threads"),
    [
        ([{"CPU": 16.0}], None, 4, 4),
        ([{"CPU": 2.0}] * 4, None, 2, 2),
        ([{"CPU": 2.0}] * 4, 1, 1, 2),
        ([{"CPU": 32.0}, {"CPU": 8.0, "GPU": 1.0}], None, 1, 8),
        ([{"CPU": 64.0}, {"GPU": 1.0, "CPU": 2.0}], 3, 3, 1),
        ([{"CPU": 4.0, "GPU": 8.0}], None, 7, 1),
        ([{"CPU": 1.0}], None, 1, 1),
        ([{"object_store_memory": 1.0}, {"CPU": 4.0}], 7, 7, 1),
    ],
)
def test_each_actor_fits_on_a_machine(
    machines: list[dict[str, float]], actors: int | None, count: int, threads: int
) -> None:
    """As many threads as let all find room, and a rest of the cores for Ray itself."""
    pool = cluster._pool(machines, actors, 100, on_gpus=True)
    assert (pool["actors"], pool["threads"]) == (count, threads)


def test_more_actors_than_there_is_room_for_are_refused() -> None:
    """Instead of waiting for ever."""
    with pytest.raises(InputError, match=r"8 actors need more than the 4 cores"):
        cluster._pool([{"CPU": 2.0}, {"CPU": 2.0}], 8, 100, on_gpus=False)


@pytest.mark.parametrize("cause", [InputError, RetrieverError])
def test_the_error_of_an_actor_is_raised_as_it_is(cause: type[RerankError]) -> None:
    """A search system that is down has another exit code than a bad input; Ray's own is neither."""
    told = RuntimeError(
        f"traceback\n  of an actor\nrerank.errors.{cause.__name__}: it is down: now"
    )
    found = cluster._plain(told)
    assert (type(found), str(found)) == (cause, "it is down: now")
    assert str(cluster._plain(RuntimeError("of Ray"))) == "Ray failed (of Ray)"


# Ray gives up after 30 seconds, of its own clock: here of one that goes a hundred times as slowly
PATIENT = """
import time, types
from ray._private import node, services

node.time, services.time = (types.SimpleNamespace(**vars(time)) for _ in range(2))
node.time.monotonic = lambda: time.monotonic() / 100
services.time.time = lambda: time.time() / 100
"""
LIMITS = {  # seconds; a worker is usually so nice that it waits for all other programs
    "RAY_gcs_server_port_wait_time_s": "3600",
    "RAY_gcs_server_request_timeout_seconds": "3600",
    "RAY_gcs_rpc_server_connect_timeout_s": "3600",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    "RAY_health_check_failure_threshold": "10000",  # tries
    "RAY_worker_register_timeout_seconds": "3600",
    "RAY_worker_niceness": "0",
}


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take minutes to start Ray, here and in other processes."""
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    for module in ("node", "services"):
        monkeypatch.setattr(f"ray._private.{module}.time", time)  # put back at the end
    exec(PATIENT, {})


@pytest.mark.usefixtures("patience")
def test_two_actors_give_the_same_bytes(
    model: CalibratedReranker, small: LabelledSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun here, stopped, and finished by two actors: both files are those of one process.

    Nothing of Ray stays on the disk, or in memory.
    """
    session = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # the paths of sockets are short
    monkeypatch.setenv("RAY_TMPDIR", str(session))
    asked = list(small.queries.values())[:5]
    own = [p.text for p in list(small.corpus.values())[:3]]
    rows = [{"_id": q.query_id, "text": q.text} for q in asked]
    rows += [{"_id": "own", "text": asked[0].text, "passages": own}]
    bad = [{"_id": "bad", "text": ""}] * (CHUNK_ROWS - 3)
    rows[3:3] = bad  # three questions in the first chunk
    queries, here, there = (tmp_path / n for n in ("queries.jsonl", "here.jsonl", "ray.jsonl"))
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rescore(model, queries, here).rejected == len(bad)
    assess, done = model.assess, list[int]()

    def stopping(queries: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(len(queries))
        return assess(queries)

    with monkeypatch.context() as patch:
        patch.setattr(model, "assess", stopping)
        with pytest.raises(KeyboardInterrupt):
            rescore(model, queries, there)
    assert done == [3]
    summary = rescore(model, queries, there, engine="ray", actors=2)
    counts = summary.answered, summary.rejected, summary.resumed
    assert counts == (6, len(bad), CHUNK_ROWS)
    assert there.read_bytes() == here.read_bytes()
    assert summary.side.read_bytes() == Path(f"{here}.rejected.jsonl").read_bytes()
    assert not ray.is_initialized()
    session.rmdir()


@pytest.mark.parametrize("setting", [None, "0"])
def test_where_ray_was_imported_before_it_is_told_of(
    setting: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Too late for the loopback address: one line that says what to set; none if it was set."""
    for name in ("RAY_ADDRESS", LISTENS_EVERYWHERE):
        monkeypatch.setenv(name, setting or "")
        monkeypatch.delenv(name)
    if setting:
        monkeypatch.setenv(LISTENS_EVERYWHERE, setting)
    assert ray_module() is ray
    assert ("listens on all network interfaces" in caplog.text) is (setting is None)


DRIVER = f"""
from rerank.cluster.ray_process import ray_module

ray_module()
{PATIENT}
import os, sys
from pathlib import Path

import rerank
from rerank.batch.job import rescore
from rerank import cluster

whole = cluster.on_ray

def held(*given, **named):
    for result in whole(*given, **named):  # so Ray runs, and an actor has answered
        import ray
        session = ray._private.worker._global_node.get_session_dir_path()
        print(os.path.dirname(session), flush=True)
        sys.stdin.read()
        yield result

cluster.on_ray = held
model, queries, out = sys.argv[1:]
rescore(rerank.load(model), Path(queries), Path(out), engine="ray", actors=1)
"""


def _listening(processes: set[int]) -> set[str]:
    """Addresses, as the kernel writes them, on which processes wait for connections."""
    held = set()
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                held.add(str(handle.readlink()))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {r[1].rpartition(":")[0] for r in rows if r[3] == "0A" and f"socket:[{r[9]}]" in held}


@pytest.mark.usefixtures("patience")
def test_ray_on_this_machine_is_ours_alone(run: Run, tmp_path: Path) -> None:
    """It listens on the loopback address only; if its driver is killed, no process of it stays."""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("needs /proc")
    queries, out = tmp_path / "queries.jsonl", tmp_path / "out.jsonl"
    queries.write_text('{"_id": "a", "query": "median", "passages": ["The middle value."]}\n')
    settings = ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, run.folder, queries, out],
        env={k: v for k, v in os.environ.items() if k not in settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        folder = Path(driver.stdout.readline().strip())
        assert folder.name.startswith("rerank-ray-"), driver.communicate()[1]
        before = users(folder)
        assert len(before) > 4
        loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
        assert _listening(before) <= loopback
        driver.kill()
        driver.wait()
    assert not out.exists()
    deadline = time.monotonic() + 600
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not folder.exists()
    assert not users(folder)

"""A new model takes over under load without a failed request; a broken one never does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from calibration.store import sealed
from rerank.assessor import CalibratedReranker
from rerank.jobs.recalibrate import recalibrate
from rerank.serving.champion import Champion
from rerank.serving.metrics import Metrics
from rerank.serving.registered import where
from rerank.serving.served import open_served
from rerank.sets.feedback import Feedback
from rerank.types import InputError, Query

QUESTION = "median along an axis"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def other(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with another confidence for the same rankings."""
    model = CalibratedReranker.load(run.folder)
    labels = [
        Feedback(Query(str(i), f"sort array number {i}"), str(i), i % 2 == 0, frozenset())
        for i in range(12)
    ]
    out = tmp_path_factory.mktemp("other") / "model"
    recalibrate(model, labels, out, pipeline=model.pipeline, corpus={})
    return out


@pytest.fixture
def place(run: Any, tmp_path: Path) -> Path:
    """Where the server's model lies: a copy that a test may replace."""
    return Path(shutil.copytree(run.folder, tmp_path / "model"))


def replace(place: Path, by: Path) -> None:
    """As a job that writes models does: a sibling, then two renames."""
    new = Path(shutil.copytree(by, place.with_name("new")))
    place.rename(place.with_name("old"))
    new.rename(place)
    shutil.rmtree(place.with_name("old"))


def metrics(started: Any) -> str:
    """The text of `/metrics`."""
    return httpx.get(f"{started.url}/metrics").text


def test_swap_under_load(run: Any, other: Path, place: Path, serving: Callable[..., Any]) -> None:
    """Every request is answered, by the old model or by the new, and by that one alone."""
    expected = {
        folder: CalibratedReranker.load(folder).search(QUESTION).confidence
        for folder in (run.folder, other)
    }
    assert len(set(expected.values())) == 2
    with serving(place, poll=0.05) as started:
        first = started.champion.current.version
        stop = threading.Event()

        def ask(_: int) -> set[tuple[str, float]]:
            heard = set()
            with httpx.Client(base_url=started.url, timeout=60) as client:
                while not stop.is_set():
                    answer = client.post("/v1/search", json={"question": QUESTION})
                    assert answer.status_code == 200, answer.text
                    told = answer.json()
                    heard.add((told["model"], told["confidence"]))
            return heard

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, i) for i in range(4)]
            replace(place, other)
            while started.champion.current.version == first and not any(a.done() for a in asking):
                pass
            last = ask_once(started)
            stop.set()
            heard = set().union(*(a.result() for a in asking))
        second = started.champion.current.version
        assert last == expected[other]
        assert heard <= {(first, expected[run.folder]), (second, expected[other])}
        assert (first, expected[run.folder]) in heard
        said = metrics(started)
        assert 'rerank_model_swaps_total{outcome="swapped"} 1.0' in said
        assert f'rerank_model_info{{model="{second}"}} 1.0' in said
        assert first not in said


def ask_once(started: Any) -> float:
    """The confidence of one answer."""
    answer = httpx.post(f"{started.url}/v1/search", json={"question": QUESTION}, timeout=60)
    assert answer.status_code == 200
    return float(answer.json()["confidence"])


def _changed_byte(place: Path) -> None:
    path = place / "calibrators.json"
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))


def _cut_in_place(place: Path) -> None:
    for path in (place / "index").iterdir():
        os.truncate(path, path.stat().st_size // 2)


def _gone(place: Path) -> None:
    shutil.rmtree(place)


def _foreign(place: Path) -> None:
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["fingerprints"]["reranker"] = "0" * 64
    (place / "manifest.json").write_text(json.dumps(sealed(manifest)))


@pytest.mark.parametrize("broken", [_changed_byte, _cut_in_place, _gone, _foreign])
def test_a_broken_model_is_refused(
    run: Any, other: Path, place: Path, serving: Callable[..., Any], broken: Callable[[Path], None]
) -> None:
    """The old one goes on, even where its own folder was broken; a good one then takes over."""
    with serving(place) as started:
        champion, before = started.champion, ask_once(started)
        first = champion.current
        broken(place)
        assert not any(champion.look() for _ in range(4))
        assert champion.current is first
        assert ask_once(started) == before
        assert 'rerank_model_swaps_total{outcome="refused"} 1.0' in metrics(started)
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(other, place)
        assert champion.look(now=True)
        assert ask_once(started) != before


def test_a_new_champion_takes_over(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """By an alias the model is the one that it names; a store that is lost changes nothing."""
    from mlflow import MlflowClient

    store = f"sqlite:///{run.work / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    first = client.search_model_versions("name = 'calibrated-rerank'")[0]
    client.set_registered_model_alias("calibrated-rerank", "tried", first.version)
    source = Path(shutil.copytree(run.folder, tmp_path / "second"))
    manifest = json.loads((source / "manifest.json").read_text())
    (source / "manifest.json").write_text(json.dumps(sealed({**manifest, "note": "second"})))
    named = where("models:/calibrated-rerank@tried", run.work)
    champion = Champion(named, Metrics())
    before = champion.current
    assert before.model.manifest == CalibratedReranker.load(run.folder).manifest
    assert not champion.look()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'nothing.db'}")
    assert not champion.look()
    assert champion.current is before
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    second = client.create_model_version(
        "calibrated-rerank", source=str(source), run_id=first.run_id
    )
    client.set_registered_model_alias("calibrated-rerank", "tried", second.version)
    assert champion.look(now=True)
    assert champion.current.model.manifest["note"] == "second"
    client.delete_model_version("calibrated-rerank", second.version)
    client.delete_registered_model_alias("calibrated-rerank", "tried")
    assert not champion.look(now=True)
    assert champion.current.model.manifest["note"] == "second"


def test_a_broken_model_is_not_started(place: Path, serving: Callable[..., Any]) -> None:
    """Without a model that answers there is no server."""
    _changed_byte(place)
    with pytest.raises(InputError, match=r"calibrators\.json is changed"), serving(place):
        pass


@pytest.fixture
def process(place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`rerank serve` in a process of its own, and its address."""
    command = [sys.executable, "-m", "rerank.cli", "serve", str(place)]
    root = Path(__file__).parent.parent
    started = subprocess.Popen(
        [*command, "--port", "0", "--poll", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert started.stderr is not None
    first = json.loads(started.stderr.readline())
    assert first["event"] == "serving", first
    yield started, first["address"]
    started.kill()
    started.wait()
    started.stderr.close()


def refused_soon(url: str) -> None:
    """Returns when the server takes no new connection, as it must within a minute."""
    end = time.monotonic() + 60
    with contextlib.suppress(httpx.ConnectError, httpx.ReadError):
        while time.monotonic() < end:
            httpx.get(f"{url}/healthz", timeout=60)
        pytest.fail("the server still takes connections")


def test_signals(process: tuple[subprocess.Popen[str], str], place: Path, other: Path) -> None:
    """SIGHUP swaps, SIGTERM under load answers what was taken, and the logs hold no text."""
    started, url = process
    before = httpx.get(f"{url}/v1/model").json()["model"]
    replace(place, other)
    started.send_signal(signal.SIGHUP)
    while httpx.get(f"{url}/v1/model").json()["model"] == before:
        pass
    told = threading.Event()

    def held(i: int) -> Iterator[bytes]:
        """A body whose end comes when the server has been told to stop."""
        body = json.dumps({"question": f"secret {i}"}).encode()
        yield body[:1]
        assert told.wait(60)
        yield body[1:]

    with ThreadPoolExecutor(6) as pool:
        sent = [
            pool.submit(httpx.post, f"{url}/v1/search", content=held(i), headers=JSON, timeout=60)
            for i in range(6)
        ]
        while "rerank_requests_in_hand 6.0" not in httpx.get(f"{url}/metrics").text:
            assert not any(s.done() for s in sent)
        started.terminate()
        refused_soon(url)
        told.set()
        assert [s.result().status_code for s in sent] == [200] * 6
    _, log = started.communicate(timeout=60)
    assert started.returncode == 0, log
    events = [json.loads(line) for line in log.splitlines()]
    assert [e["event"] for e in events if e["event"] != "request"] == ["model swapped", "served"]
    searches = [e for e in events if e.get("door") == "search"]
    assert len(searches) == 6
    logged = {"id", "status", "seconds", "confidence", "level", "model"}
    assert all(logged <= set(e) for e in searches)
    assert "secret" not in log


def test_only_what_the_manifest_lists_is_copied(run: Any, tmp_path: Path) -> None:
    """What else lies in the folder is passed over; without a manifest nothing is copied."""
    folder = Path(shutil.copytree(run.folder, tmp_path / "model"))
    (folder / "huge").write_bytes(b"x")
    assert open_served(folder).model.search("sort an array").confidence > 0
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest\.json"):
        open_served(folder)


def test_a_swap_that_found_no_room_is_tried_again(
    place: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll swaps when there is room again, though the folder is the same; it is told once."""
    champion = Champion(lambda: place, Metrics())
    before = champion.current
    replace(place, other)
    copied: list[object] = []

    def full(*given: object, **_: object) -> None:
        copied.append(given)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", full)
        assert not any(champion.look() for _ in range(4))
    assert len(copied) == 3  # the first look waits until the folder has settled
    assert champion.current is before
    assert champion.metrics.swaps.labels("refused")._value.get() == 1
    assert champion.look()
    assert champion.current is not before


def test_a_killed_start_leaves_nothing_to_the_next(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that a process was making when it was killed goes at once."""
    monkeypatch.setattr("rerank.serving.served.COPIES", tmp_path / "rerank-serve")
    code = f"""
import os, shutil, signal
from pathlib import Path
from rerank.serving import served
served.COPIES = Path({str(tmp_path / "rerank-serve")!r})
copy = shutil.copy2
def killed(*given, **named):
    copy(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
shutil.copy2 = killed
served.open_served(Path({str(run.folder)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 1
    open_served(run.folder)
    assert not os.listdir(tmp_path)

"""A new model takes over under load without a failed request; a broken one never does."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import Feedback
from rerank.errors import InputError, RetrieverError
from rerank.jobs.recalibrate import recalibrate
from rerank.serving.model_source import ModelHolder, folder_state, open_model, place_of_model
from rerank.serving.telemetry import Metrics
from rerank.storage.files import sha256_file
from rerank.storage.folder import with_digest
from rerank.types import Query

QUERY = "median along an axis"


@pytest.fixture(scope="module")
def other(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with another confidence for the same rankings."""
    model = CalibratedReranker.load(run.folder)
    labels = [
        Feedback(Query(f"sort array number {i}", str(i)), str(i), i % 2 == 0, frozenset())
        for i in range(12)
    ]
    out = tmp_path_factory.mktemp("other") / "model"
    recalibrate(model, labels, out)
    return out


def replace(place: Path, by: Path) -> None:
    """As a job that writes models does: a sibling, then two renames."""
    new = Path(shutil.copytree(by, place.with_name("new")))
    place.rename(place.with_name("old"))
    new.rename(place)
    shutil.rmtree(place.with_name("old"))


def metrics(started: Any) -> str:
    """The text of `/metrics`."""
    return httpx.get(f"{started.url}/metrics", timeout=600).text


def test_swap_under_load(run: Any, other: Path, place: Path) -> None:
    """Every request is answered, by the old model or by the new, and by that one alone."""
    expected = {
        folder: CalibratedReranker.load(folder).search(QUERY).confidence
        for folder in (run.folder, other)
    }
    assert len(set(expected.values())) == 2
    with serving(place, poll=0.05) as started:
        first = started.holder.current.version
        begun, stop = threading.Event(), threading.Event()

        def ask(_: int) -> set[tuple[str, float]]:
            heard = set()
            with httpx.Client(base_url=started.url, timeout=600) as client:
                while not stop.is_set():
                    answer = client.post("/v1/search", json={"query": QUERY})
                    assert answer.status_code == 200, answer.text
                    found = answer.json()
                    heard.add((found["model"], found["confidence"]))
                    begun.set()
            return heard

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, i) for i in range(4)]
            while not begun.wait(1) and not any(a.done() for a in asking):
                pass
            replace(place, other)
            while started.holder.current.version == first and not any(a.done() for a in asking):
                pass
            last = ask_once(started)
            stop.set()
            heard = set().union(*(a.result() for a in asking))
        second = started.holder.current.version
        assert last == expected[other]
        assert heard <= {(first, expected[run.folder]), (second, expected[other])}
        assert (first, expected[run.folder]) in heard
        said = metrics(started)
        assert 'rerank_model_swaps_total{outcome="swapped"} 1.0' in said
        assert f'rerank_model_info{{model="{second}"}} 1.0' in said
        assert first not in said


def ask_once(started: Any) -> float:
    """The confidence of one answer."""
    answer = httpx.post(f"{started.url}/v1/search", json={"query": QUERY}, timeout=600)
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
    (place / "manifest.json").write_text(json.dumps(with_digest(manifest)))


@pytest.mark.parametrize("broken", [_changed_byte, _cut_in_place, _gone, _foreign])
def test_a_broken_model_is_refused(
    run: Any, other: Path, place: Path, broken: Callable[[Path], None]
) -> None:
    """The old one goes on, even where its own folder was broken; a good one then takes over."""
    with serving(place) as started:
        holder, before = started.holder, ask_once(started)
        first = holder.current
        broken(place)
        assert not any(holder.refresh() for _ in range(4))
        assert holder.current is first
        assert ask_once(started) == before
        assert 'rerank_model_swaps_total{outcome="refused"} 1.0' in metrics(started)
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(other, place)
        assert holder.refresh(now=True)
        assert ask_once(started) != before


def test_a_new_champion_takes_over(
    run: Any, tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """By an alias the model is the one that it names; a store that is lost changes nothing."""
    from mlflow import MlflowClient

    store = f"sqlite:///{run.work / 'mlflow.db'}"
    name = run.outcome.run.model_name
    client = MlflowClient(tracking_uri=store, registry_uri=store)
    first = client.get_model_version(name, run.outcome.run.model_version)
    client.set_registered_model_alias(name, "tried", first.version)
    source = Path(shutil.copytree(run.folder, tmp_path / "second"))
    manifest = json.loads((source / "manifest.json").read_text())
    (source / "manifest.json").write_text(json.dumps(with_digest({**manifest, "note": "second"})))
    named = place_of_model(f"models:/{name}@tried", run.work)
    holder = ModelHolder(named.folder, Metrics(), run_of=named.run)
    before = holder.current
    assert before.model.manifest == CalibratedReranker.load(run.folder).manifest
    assert before.run is not None
    assert (before.run.run_id, before.run.model_version) == (first.run_id, str(first.version))
    assert not holder.refresh()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'nothing.db'}")
    assert not any(holder.refresh() for _ in range(3))
    assert holder.current is before
    (lost,) = [r for r in caplog.records if r.msg.startswith("the model's place does not answer")]
    assert lost.fields["why"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with monkeypatch.context() as patch:  # the same model is not loaded again
        patch.setattr("rerank.serving.model_source.open_model", pytest.fail)
        assert not any(holder.refresh() for _ in range(3))
    assert holder.metrics.swaps.labels("refused")._value.get() == 0
    second = client.create_model_version(name, source=str(source), run_id=first.run_id)
    client.set_registered_model_alias(name, "tried", second.version)
    assert holder.refresh(now=True)
    assert holder.current.model.manifest["note"] == "second"
    assert holder.current.run is None  # the run that is named has logged another model
    client.delete_model_version(name, second.version)
    client.delete_registered_model_alias(name, "tried")
    assert not holder.refresh(now=True)
    assert holder.current.model.manifest["note"] == "second"


def test_a_broken_model_is_not_started(place: Path) -> None:
    """Without a model that answers there is no server."""
    _changed_byte(place)
    with pytest.raises(InputError, match=r"calibrators\.json is changed"), serving(place):
        pass


def test_a_pinned_server_takes_no_other_model(place: Path, other: Path) -> None:
    """Neither at its start nor later; a whole and working model is refused, too."""
    pin = sha256_file(place / "manifest.json")
    holder = ModelHolder(lambda: place, Metrics(), manifest_sha256=pin)
    before = holder.current
    replace(place, other)
    assert not holder.refresh(now=True)
    assert holder.current is before
    with pytest.raises(InputError, match=f"expected {pin}"):
        ModelHolder(lambda: place, Metrics(), manifest_sha256=pin)


def test_only_what_the_manifest_lists_is_copied(run: Any, tmp_path: Path) -> None:
    """What else lies in the folder is passed over; without a manifest nothing is copied."""
    folder = Path(shutil.copytree(run.folder, tmp_path / "model"))
    (folder / "huge").write_bytes(b"x")
    assert open_model(folder).model.search("sort an array").confidence > 0
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest\.json"):
        open_model(folder)


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _full_cache(*_: object, **__: object) -> None:
    """As `engine` does when it keeps an exported network."""
    try:
        _full()
    except OSError as error:
        raise OSError(f"no exported network can be kept there: {error}") from error


def _full_when_read(*_: object, **__: object) -> None:
    """As a folder's reader does, which only passes on the sentence."""
    try:
        _full()
    except OSError as error:
        raise InputError(str(error)) from None


def _crowded(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def _away(*_: object, **__: object) -> None:
    """As the search system behind a model."""
    raise RetrieverError("the collection does not answer")


@pytest.mark.parametrize(
    ("step", "fails", "expected"),
    [
        ("shutil.copy2", _full, "cannot be served: .*No space left"),
        ("shutil.copy2", _crowded, "cannot be served: .*Too many open files"),
        (
            "rerank.serving.model_source._try",
            _full_cache,
            "cannot be served: no exported network can be kept there: .*No space left",
        ),
        (
            "rerank.serving.model_source.CalibratedReranker.load",
            _full_when_read,
            "No space left",
        ),
        ("rerank.serving.model_source._try", _away, "the collection does not answer"),
    ],
)
def test_a_swap_that_failed_for_now_is_tried_again(
    place: Path,
    other: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
    fails: Callable[..., None],
    expected: str,
) -> None:
    """The poll swaps when there is room, or an answer, again, though the folder is the same."""
    holder = ModelHolder(lambda: place, Metrics())
    before = holder.current
    replace(place, other)
    tried: list[object] = []

    def failing(*given: object, **named: object) -> None:
        tried.append(given)
        fails(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(step, failing)
        assert not any(holder.refresh() for _ in range(4))
    assert len(tried) == 3  # the first look waits until the folder has settled
    assert holder.current is before
    assert holder.metrics.swaps.labels("refused")._value.get() == 1
    (why,) = [r.fields["why"] for r in caplog.records if r.msg.startswith("new model rejected")]
    assert re.search(expected, why)
    assert holder.refresh()
    assert holder.current is not before


def test_a_refusal_says_why(
    place: Path, other: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache that cannot be written is named, and not only the kind of the error."""
    holder = ModelHolder(lambda: place, Metrics())
    replace(place, other)

    def closed(_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/cache/models")

    monkeypatch.setattr("rerank.serving.model_source._try", closed)
    assert not holder.refresh(now=True)
    (why,) = [r.fields["why"] for r in caplog.records if r.msg.startswith("new model rejected")]
    assert why == f"{place} cannot be served: [Errno 13] Permission denied: '/cache/models'"


def test_a_folder_that_cannot_be_looked_at_now_is_looked_at_again(
    place: Path, other: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where too many files are open nothing is refused, and the next looks swap."""
    holder = ModelHolder(lambda: place, Metrics())
    before = holder.current
    replace(place, other)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", _crowded)
        assert folder_state(place) is None
        assert not any(holder.refresh() for _ in range(3))
    assert "new model rejected" not in caplog.text
    assert [holder.refresh(), holder.refresh()] == [False, True]
    assert holder.current is not before


def test_a_killed_start_leaves_nothing_to_the_next(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that a process was making when it was killed goes at once."""
    monkeypatch.setattr("rerank.serving.model_source.COPIES", tmp_path / "rerank-serve")
    code = f"""
import os, shutil, signal
from pathlib import Path
from rerank.serving import model_source
model_source.COPIES = Path({str(tmp_path / "rerank-serve")!r})
copy = shutil.copy2
def killed(*given, **named):
    copy(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
shutil.copy2 = killed
model_source.open_model(Path({str(run.folder)!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 1
    open_model(run.folder)
    assert not os.listdir(tmp_path)

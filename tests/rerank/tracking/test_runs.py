"""Tracking is read back from a real SQLite store, through MLflow's own client."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from rerank.errors import TrackingError
from rerank.storage.folder import Workspace, write_folder
from rerank.tracking.client import store
from rerank.tracking.registry import fetch
from rerank.tracking.runs import DataUsed, RunRecord, TrackedRun, log_run, track

Log = Callable[..., TrackedRun]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture
def log(place: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(record: RunRecord, **options: str) -> TrackedRun:
        given = {"tracking_uri": f"sqlite:///{place}/runs.db", "experiment": "calibrate"}
        given |= {"run_name": "first", "artifact_location": str(place / "artifacts")}
        return log_run(record, **{**given, **options})

    return call


def test_everything_of_a_record_is_read_back(
    log: Log, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a record holds stands in the store, and its folder is a registered version."""
    folder = place / "folder"
    folder.mkdir()
    (folder / "calibrators.json").write_text("{}")
    (place / "reliability.png").write_bytes(b"a picture")
    record = RunRecord(
        params={"C": 0.1, "long": "x" * 9000},
        metrics={"brier": 0.2, "auroc": float("nan"), "smece": float(np.float64(0.01))},
        curves={"loss": {20: 0.9, 40: 0.5}},
        tags={"set": "pydata"},
        inputs=[
            DataUsed("pydata", "a" * 64, "calibration", {"train_queries": 3}, {"id": "string"})
        ],
        files=[place / "reliability.png"],
        tables={"comparison": pd.DataFrame({"name": ["raw"], "brier": [0.25]})},
        folder=folder,
        registered_name="assessor",
    )
    uri_before, level_before = mlflow.get_tracking_uri(), logging.getLogger("alembic").level

    run = log(record)

    assert "alembic" not in capfd.readouterr().err
    assert mlflow.get_tracking_uri() == uri_before
    assert mlflow.active_run() is None
    assert logging.getLogger("alembic").level == level_before
    client = mlflow.MlflowClient(tracking_uri=run.tracking_uri)
    data, info = client.get_run(run.run_id).data, client.get_run(run.run_id).info
    assert (info.status, info.run_name) == ("FINISHED", "first")
    assert data.params["C"] == "0.1"
    assert len(data.params["long"]) == 6000
    assert data.metrics["brier"] == 0.2
    assert data.tags["set"] == "pydata"
    commit = ["git", "rev-parse", "HEAD"]
    said = subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip()
    assert data.tags.get("mlflow.source.git.commit", "") == said
    assert data.tags["mlflow.source.name"].startswith(Path(sys.argv[0]).name)
    (used,) = client.get_run(run.run_id).inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("pydata", "a" * 36)
    assert json.loads(used.dataset.profile) == {"train_queries": 3}
    (column,) = json.loads(used.dataset.schema)["mlflow_colspec"]
    assert (column["name"], column["type"]) == ("id", "string")
    assert {tag.key: tag.value for tag in used.tags} == {"mlflow.data.context": "calibration"}
    curve = client.get_metric_history(run.run_id, "loss")
    assert {point.step: point.value for point in curve} == {20: 0.9, 40: 0.5}
    kept = {item.path for item in client.list_artifacts(run.run_id)}
    assert {"reliability.png", "comparison.json", "params.json"} <= kept
    files = Path(info.artifact_uri.removeprefix("file://"))
    assert (files / "reliability.png").read_bytes() == b"a picture"
    assert '"raw"' in (files / "comparison.json").read_text()
    (logged,) = client.search_logged_models([info.experiment_id])
    assert (logged.name, logged.source_run_id) == ("model", run.run_id)
    assert (logged.status.name, logged.tags["set"]) == ("READY", "pydata")
    held = Path(logged.artifact_location.removeprefix("file://"))
    assert (held / "calibrators.json").read_text() == "{}"
    place_of_run = fetch(f"runs:/{run.run_id}/model", tracking_uri=run.tracking_uri).folder
    assert place_of_run == held
    version = client.get_model_version("assessor", run.model_version)
    assert (run.model_version, version.run_id) == ("1", run.run_id)
    assert version.source == logged.artifact_location

    again = log(record)

    assert again.model_version == "2"
    assert again.experiment_id == run.experiment_id


def test_a_run_that_breaks_is_marked_failed(log: Log) -> None:
    """A record that cannot be written raises, and its run does not stay RUNNING for ever."""
    with pytest.raises((TypeError, ValueError)):
        log(RunRecord(metrics={"brier": "much"}), experiment="broken")  # type: ignore[dict-item]
    run = log(RunRecord(), experiment="broken")
    client = mlflow.MlflowClient(tracking_uri=run.tracking_uri)
    states = sorted(r.info.status for r in client.search_runs([run.experiment_id]))
    assert states == ["FAILED", "FINISHED"]
    assert run.model_version is None


def test_the_environment_wins_over_the_default(
    log: Log, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLFLOW_TRACKING_URI decides where a run is written, whatever the caller's default is."""
    uri = f"sqlite:///{place}/runs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    run = log(RunRecord(), tracking_uri="sqlite:////nowhere/at/all.db")
    assert run.tracking_uri == uri


def test_a_database_is_made_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped among MLflow's migrations, none stands under its name, and the next call makes it."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    made = MlflowClient.search_experiments

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowClient, "search_experiments", stopped)
    with pytest.raises(KeyboardInterrupt), store(uri):
        pass
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(MlflowClient, "search_experiments", made)
    with store(uri) as client:
        assert client.search_experiments()
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_stores_are_spoken_to_one_after_another(tmp_path: Path) -> None:
    """Two threads with two stores: each writes to its own, and nothing stays set."""
    uris = [f"sqlite:///{tmp_path / name}.db" for name in ("one", "two")]

    def write(uri: str) -> str:
        with store(uri) as client:
            client.create_experiment(uri)
            return str(os.environ["MLFLOW_TRACKING_URI"])

    before = os.environ.get("MLFLOW_TRACKING_URI")
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, uris)) == uris
    assert os.environ.get("MLFLOW_TRACKING_URI") == before
    for uri in uris:
        with store(uri) as client:
            assert client.get_experiment_by_name(uri) is not None


@pytest.mark.parametrize("name", ["a%2Fb c", "what?", "a#b", "ä & +", "it's"])
def test_a_store_may_be_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """The database and the files are in it, and nowhere else; they are read from there.

    MLflow itself leaves an empty folder beside it, of the name as the URL has it.
    """
    work, folder = Workspace(tmp_path / name), tmp_path / "folder"
    work.path.mkdir()
    folder.mkdir()
    (folder / "file").write_text("some")
    log_run(
        RunRecord(folder=folder, registered_name="a"),
        experiment="e",
        run_name="r",
        tracking_uri=work.tracking_uri,
        artifact_location=work.artifacts.resolve().as_uri(),
    )
    assert work.database.is_file()
    files = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parts[0] for path in files} == {name, "folder"}
    found = fetch("models:/a/1", tracking_uri=work.tracking_uri)
    assert found.temporary is None
    assert found.folder.is_relative_to(work.artifacts)
    assert (found.folder / "file").read_text() == "some"


def test_a_deleted_experiment_says_how_to_restore_it(tmp_path: Path) -> None:
    """MLflow keeps its name, so none is made; the folder that is tracked may have any name."""
    work, written = Workspace(tmp_path / "a work"), tmp_path / "a model"
    write_folder(written, lambda _: {})

    def send() -> TrackedRun:
        return track(
            RunRecord, experiment="e", run_name="r", work=work, written=written, again="again"
        )

    client = MlflowClient(tracking_uri=work.tracking_uri)
    number = send().experiment_id
    client.delete_experiment(number)
    shutil.rmtree(work.path / "tracked")
    with pytest.raises(
        TrackingError, match=f"experiments restore --experiment-id {number}"
    ) as told:
        send()
    assert told.value.exit_code == 3
    assert "check MLFLOW_TRACKING_URI" not in str(told.value)
    client.restore_experiment(number)
    assert send().experiment_id == number

"""Names of models, and what is said where MLflow does not give one."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from rerank.errors import InputError, TrackingError
from rerank.tracking.registry import aliases, fetch, is_uri, name_of


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("pydata", "calibrated-rerank-pydata"),
        ("my set: v2/é", "calibrated-rerank-my-set-v2-é"),
        ("it's", "calibrated-rerank-it-s"),
        ("x" * 900, "calibrated-rerank-" + "x" * 182),
    ],
)
def test_a_name_is_made_from_the_set(dataset: str, name: str) -> None:
    """Whatever a set is called, MLflow takes the name, and a URI can hold it."""
    assert name_of("", dataset) == name
    assert name_of(name, "another set") == name


@pytest.mark.parametrize("name", ["a/b", "a:b", "a@b", "it's", " a", "x" * 201])
def test_a_name_that_mlflow_cannot_hold_is_refused(name: str) -> None:
    """It is the user's own, and is not changed."""
    with pytest.raises(InputError, match="cannot name a model"):
        name_of(name, "s")


def test_names_work_in_mlflow(tmp_path: Path) -> None:
    """MLflow itself takes made names, for experiments and for models."""
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    for dataset in ("my set: v2/é", "it's", "x" * 900):
        name = name_of("", dataset)
        client.create_experiment(name)
        client.create_registered_model(name)
        assert client.search_model_versions(f"name = '{name}'") == []


def test_a_folder_is_no_uri() -> None:
    """MLflow is asked for its own names only."""
    assert is_uri("models:/a@champion")
    assert is_uri("runs:/1/model")
    assert not is_uri(Path("models"))


def test_a_dead_server_is_not_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told apart from a model that is not there, and by another exit code."""
    from rerank.cli import main

    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"http://ann:secret@127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead)
    refused = r"^http://127\.\S+ does not give models:/a/1: .*MLFLOW_TRACKING_URI"
    with pytest.raises(TrackingError, match=refused) as error:
        fetch("models:/a/1")
    assert "secret" not in str(error.value)
    with pytest.raises(TrackingError, match="the aliases of a"):
        aliases("a", tracking_uri="sqlite:///unused.db")
    assert main(["search", "models:/a/1", "sort an array"]) == 3


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: Any) -> None:
    """To ask for a model leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=r"mlflow\.db, which does not exist; set MLFLOW_TRACKING_URI"
    ):
        fetch("models:/a/1")
    assert not list(tmp_path.iterdir())


WITHOUT = """
import sys
sys.modules["mlflow"] = None
import rerank, rerank.jobs.calibrate, rerank.jobs.promote, rerank.training.finetune
from rerank.tracking.registry import fetch
try:
    fetch("models:/a/1")
except rerank.MissingExtraError as error:
    print(error)
"""


def test_without_mlflow_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    """No module needs it to be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    (said,) = done.stdout.splitlines()
    assert said.startswith("the extra [track] is not installed")
    assert "pip install" in said

"""A finished model and MLflow: sent whole, sent once, sent later, and run by MLflow's own means."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import open_folder
from rerank.batch.table import OUTPUT_EXAMPLE, assess_table, frame
from rerank.cli import main
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError, TrackingError
from rerank.jobs.track import metrics_of, record_of, track_model
from rerank.storage.folder import verify_folder
from rerank.tracking.uris import NAME
from rerank.workspace import noted_run, tracked_run

mlflow = pytest.importorskip("mlflow")
pd = pytest.importorskip("pandas")

Run = Any  # the session's run, see conftest


@pytest.fixture(scope="module")
def model(run: Run) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user may ask for; what is set already is not overruled."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@contextmanager
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class Failing:
    """MLflow's own server, over HTTP; after `healthy` requests it hangs, until it is mended."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self.app, self.healthy, self.asked = app, 10**9, 0
        self.mended = threading.Event()

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        """Answer a request, or let it wait."""
        self.asked += 1
        if self.asked > self.healthy:
            self.mended.wait(60)
        return self.app(environ, start)


@pytest.fixture(scope="module")
def server(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Failing]]:
    """An MLflow tracking server on a copy of the run's database, which is migrated already."""
    from werkzeug.serving import make_server

    home = tmp_path_factory.mktemp("server")
    shutil.copyfile(run.work / "mlflow.db", home / "served.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{home / 'served.db'}")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", "mlflow-artifacts:/")
        patch.setenv("_MLFLOW_SERVER_ARTIFACT_DESTINATION", (home / "files").as_uri())
        patch.setenv("_MLFLOW_SERVER_SERVE_ARTIFACTS", "true")
        from mlflow.server import app

        failing = Failing(app)
        made = make_server("127.0.0.1", 0, failing, threaded=True)
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{made.server_port}"
        mlflow.MlflowClient(tracking_uri=address).search_experiments()
        mlflow.set_tracking_uri(None)  # a server sets its own stores, for its whole process
        yield address, failing
        failing.mended.set()
        made.shutdown()
        mlflow.set_registry_uri(None)
        os.environ.pop("MLFLOW_REGISTRY_URI", None)


# --- what is sent -----------------------------------------------------------------------------


def test_everything_comes_from_the_folder(run: Run) -> None:
    """A record is the same wherever and whenever it is made, and names the certificate."""
    record = record_of(open_folder(run.folder))
    measured = json.loads((run.folder / "reliability.json").read_text())
    assert record.metrics["brier"] == measured["confidence"]["calibrated"]["brier"]
    assert record.metrics["relevance_ndcg10"] == measured["orders"]["relevance"]["ndcg10"]
    kept = json.loads((run.folder / "calibrators.json").read_text())["found"]["certificate"]
    assert record.metrics["certificate_queries"] == kept["queries"]
    assert ("certificate_threshold" in record.metrics) == (kept["threshold"] is not None)
    assert any(word in record.params["certificate"] for word in ("certified", "at 95% confidence"))
    assert record.tags["certified"] == str(kept["threshold"] is not None).lower()
    assert {path.suffix for path in record.files} == {".png"}


def test_what_cannot_be_told_is_not_logged() -> None:
    """An unknown number is left out, and a moved model's row is its own."""
    measured = {
        "confidence": {
            "before": {"brier": 0.3},
            "after": {"brier": 0.2, "auroc": None, "smece_interval": [0.1, None]},
        }
    }
    assert metrics_of(measured) == {"brier": 0.2, "smece_interval_low": 0.1}


def test_the_same_model_is_sent_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the run that holds it, with the working folder's note and without it."""
    for note in (True, False):
        if not note:
            shutil.rmtree(run.work / "tracked")
        assert main(["track", str(run.folder), "--work", str(run.work)]) == 0
        said = capsys.readouterr().out
        assert f"already tracked as run {run.outcome.run.run_id}" in said
        assert f"models:/{NAME}/{run.outcome.run.model_version}" in said
    client = mlflow.MlflowClient(tracking_uri=run.outcome.run.tracking_uri)
    assert len(client.search_runs([run.outcome.run.experiment_id])) == 1


def test_only_a_whole_model_is_sent(run: Run, tmp_path: Path) -> None:
    """A damaged folder is refused before anything is sent."""
    broken = shutil.copytree(run.folder, tmp_path / "model")
    (broken / "sketch.json").write_text("{}")
    with pytest.raises(InputError, match=r"sketch.json has"):
        track_model(broken, work=tmp_path)
    assert not (tmp_path / "mlflow.db").exists()


# --- a server that fails ----------------------------------------------------------------------


def test_a_server_that_is_down_costs_no_model(
    run: Run,
    small_folder: Path,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    impatient: None,
) -> None:
    """`calibrate` says so, exits with 3, and names the command that works when it is back."""
    from rerank.arguments import OPTIONS

    monkeypatch.setattr("rerank.arguments.Config", lambda: config)
    kept = config.to_dict()
    options = [f"--{n.replace('_', '-')}={kept[n]}" for n in OPTIONS]
    work, out = tmp_path / "work", tmp_path / "model"
    shutil.copytree(run.folder, out)  # made, and not yet sent
    command = ["calibrate", str(small_folder), "--out", str(out), "--work", str(work), *options]
    with silent() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert main(command) == 3
    said = capsys.readouterr()
    assert said.err.count("rerank: error:") == 1
    assert "Traceback" not in said.err
    assert f"rerank track {out} --work {work}" in said.err
    assert run.outcome.report in said.out
    verify_folder(out)
    assert tracked_run(out, work) is None


def test_a_server_that_hangs_in_the_middle_costs_no_model(
    run: Run,
    server: tuple[str, Failing],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever it stops answering the failure is told; when it is back the model is sent once."""
    address, failing = server
    model = shutil.copytree(run.folder, tmp_path / "model")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr("rerank.workspace.NAME", "served")  # whose files the server keeps
    client = mlflow.MlflowClient(tracking_uri=address)
    for healthy in (3, 9):
        failing.asked, failing.healthy = 0, healthy
        failing.mended.clear()
        with monkeypatch.context() as patch:
            patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
            patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
            with pytest.raises(TrackingError, match="is written, but MLflow did not take"):
                track_model(model, work=tmp_path)
        failing.mended.set()
        assert tracked_run(model, tmp_path) is None
        verify_folder(model)
    failing.healthy = 10**9
    sent = track_model(model, work=tmp_path)
    assert not sent.found
    assert track_model(model, work=tmp_path).run_id == sent.run_id
    runs = client.search_runs([sent.experiment_id])
    finished = [r.info.run_id for r in runs if r.info.status == "FINISHED"]
    assert finished == [sent.run_id]
    uri = f"models:/{NAME}/{sent.model_version}"
    again = CalibratedReranker.load(uri)
    place = again.folder
    assert again.manifest == CalibratedReranker.load(model).manifest
    del again
    assert not place.exists()  # a copy goes with its model


def test_what_the_user_set_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is MLflow's own setting: ours for the while, the user's where there is one."""
    from rerank.tracking.client import PATIENCE, store

    first, second = PATIENCE
    monkeypatch.setenv(first, "5")
    monkeypatch.delenv(second, raising=False)
    with store("sqlite://"):
        assert os.environ[first] == "5"
        assert os.environ[second] == PATIENCE[second]
    assert second not in os.environ


# --- run by MLflow ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(run: Run) -> Any:
    """The registered version, as MLflow loads it, while its champion."""
    from rerank.tracking.registry import CHAMPION, crown

    uri = run.outcome.run.tracking_uri
    crown(NAME, run.outcome.run.run_id, tracking_uri=uri)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        found = mlflow.pyfunc.load_model(f"models:/{NAME}@{CHAMPION}")
    yield found
    mlflow.MlflowClient(tracking_uri=uri).delete_registered_model_alias(NAME, CHAMPION)


def questions(run: Run, small: LabelledSet) -> Any:
    ids = run.plan.report[:3]
    return frame({"query_id": ids, "text": [small.queries[i].text for i in ids]})


def expected(model: CalibratedReranker, asked: Any) -> list[dict[str, Any]]:
    """What `search` says, row by row."""
    rows = []
    for query_id, text in zip(asked["query_id"], asked["text"], strict=True):
        found = model.search(text)
        rows.append(
            {
                "query_id": query_id,
                "confidence": found.confidence,
                "sufficiency": found.sufficiency,
                "level": found.level,
                "verdict": found.verdict,
                "accepted": found.accepted,
                "certified": found.certified,
                "doc_ids": list(found.ranking.doc_ids[:10]),
                "relevance": found.ranking.relevance[:10].tolist(),
            }
        )
    return rows


def test_mlflow_gives_the_numbers_of_load(
    loaded: Any, model: CalibratedReranker, run: Run, small: LabelledSet
) -> None:
    """`mlflow.pyfunc.load_model` of the champion, with ids and without."""
    asked = questions(run, small)
    said = loaded.predict(asked)
    assert list(said.columns) == list(OUTPUT_EXAMPLE)
    assert said.to_dict("records") == expected(model, asked)
    bare = loaded.predict(asked[["text"]])
    assert bare["query_id"].tolist() == ["0", "1", "2"]
    assert bare["confidence"].tolist() == said["confidence"].tolist()


def test_mlflow_serves_the_numbers_of_load(
    loaded: Any, model: CalibratedReranker, run: Run, small: LabelledSet
) -> None:
    """The application that `mlflow models serve` runs, asked over HTTP's own carriers."""
    from fastapi.testclient import TestClient
    from mlflow.pyfunc.scoring_server import init

    asked = questions(run, small)
    client = TestClient(init(loaded))
    records = {"dataframe_records": asked.to_dict("records")}
    answered = client.post("/invocations", json=records)
    assert answered.status_code == 200
    assert answered.json()["predictions"] == expected(model, asked)
    assert client.post("/invocations", json={"inputs": {"word": ["x"]}}).status_code == 400


def test_the_signature_is_that_of_the_table(loaded: Any) -> None:
    """Text is needed, an id is not; the output is flat."""
    inputs = {c.name: c.required for c in loaded.metadata.signature.inputs}
    assert inputs == {"query_id": False, "text": True}
    assert loaded.metadata.signature.outputs.input_names() == list(OUTPUT_EXAMPLE)


def test_the_champion_is_loaded_by_its_name(
    loaded: Any, run: Run, model: CalibratedReranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`load` takes the alias, the number and the run; another store has none of them."""
    uri, run_id = run.outcome.run.tracking_uri, run.outcome.run.run_id
    asked = [f"models:/{NAME}@champion", f"models:/{NAME}/1", f"runs:/{run_id}/model"]
    for name in asked:
        found = CalibratedReranker.load(name, tracking_uri=uri)
        assert found.manifest == model.manifest
        assert found.folder.is_dir()
    for wrong in (f"models:/{NAME}@nobody", f"models:/{NAME}/99", "models:/x", "runs:/none/model"):
        with pytest.raises(InputError, match="does not give"):
            CalibratedReranker.load(wrong, tracking_uri=uri)
    monkeypatch.chdir(run.folder)
    with pytest.raises(InputError, match="set MLFLOW_TRACKING_URI"):
        CalibratedReranker.load(asked[0])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"text": ["a", "", None, 3, " "]}, "rows 1, 2, 3, 4: 'text' is empty or no text"),
        ({"question": ["a"]}, "expected a column 'text', got"),
    ],
)
def test_bad_rows_are_named(
    model: CalibratedReranker, given: dict[str, list[Any]], sentence: str
) -> None:
    """Before any is answered."""
    with pytest.raises(InputError, match=sentence):
        assess_table(model, given)


def test_no_rows_give_an_empty_table(model: CalibratedReranker) -> None:
    """With every column, and of its type."""
    none = assess_table(model, {"text": []})
    assert list(none.columns) == list(OUTPUT_EXAMPLE)
    assert none["confidence"].dtype == float


def test_a_run_of_another_store_is_not_this_ones(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that one store knows is still to be sent to another."""
    assert noted_run(run.folder, run.work) is not None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    assert noted_run(run.folder, run.work) is None

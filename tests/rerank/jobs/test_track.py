"""A finished model and MLflow: sent whole, sent once, sent later, and run by MLflow's own means."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import flags

from calibration.thresholds import Certificate
from rerank.assessment.fitted_maps import maps_from_dict
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import open_folder
from rerank.batch.job import rescore
from rerank.batch.table import OUTPUT_EXAMPLE, TOP, assess_table, frame
from rerank.cli import main
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError, TrackingError
from rerank.jobs.track import metrics_of, record_of, track_if_installed, track_model
from rerank.storage.files import sha256_file
from rerank.storage.folder import MANIFEST, Workspace, verify_folder, with_digest
from rerank.tracking.client import sqlite_file
from rerank.tracking.runs import read_note
from rerank.types import Query

mlflow = pytest.importorskip("mlflow")
pd = pytest.importorskip("pandas")

Run = Any  # the session's run, see conftest
NAME = "calibrated-rerank-small"  # after the set


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
            self.mended.wait(600)
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


@pytest.fixture
def served_model(run: Run, tmp_path: Path) -> Path:
    """The run's model, renamed: its experiment's files are kept by the server."""
    model = shutil.copytree(run.folder, tmp_path / "model")
    manifest = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(with_digest({**manifest, "name": "served"})))
    return model


# --- what is sent -----------------------------------------------------------------------------


def test_everything_comes_from_the_folder(run: Run) -> None:
    """A record is the same wherever and whenever it is made, and names the certificate."""
    record = record_of(open_folder(run.folder))
    measured = json.loads((run.folder / "reliability.json").read_text())
    ours = measured["confidence"]["calibrated"]
    few = record.metrics
    assert (few["hit_at_1"], few["brier"]) == (ours["base_accuracy"], ours["brier"])
    assert [few["smece_low"], few["smece_high"]] == ours["smece_interval"]
    assert few["ndcg_at_10_relevance"] == measured["orders"]["relevance"]["ndcg10"]
    assert few["rerank_brier"] == measured["rerank"]["confidence"]["calibrated"]["brier"]
    kept = maps_from_dict(json.loads((run.folder / "calibrators.json").read_text()))["search"]
    certified = kept.certificate.threshold is not None
    assert ("certified_threshold" in few) == certified
    assert record.tags["certified"] == str(certified).lower()
    assert record.params["certificate"] == kept.certificate.sentence
    assert record.registered_name == NAME
    assert {path.suffix for path in record.files} == {".png", ".html"}


def test_few_numbers_are_metrics_and_all_are_in_a_table(run: Run) -> None:
    """A page of metrics is for comparing; what else was measured is one table."""
    record = record_of(open_folder(run.folder))
    assert len(record.metrics) <= 42
    assert not [name for name in record.metrics if "sufficiency" in name and "_at_5_" not in name]
    rows = record.tables["measurements"]
    measured = json.loads((run.folder / "reliability.json").read_text())
    found = rows[(rows["mode"] == "search") & (rows["part"] == "events")]
    assert set(found["name"]) == set(measured["events"])
    for mode, part in (("search", measured), ("rerank", measured["rerank"])):
        one = rows[(rows["mode"] == mode) & (rows["name"] == "calibrated")]
        numbers = dict(zip(one["metric"], one["value"], strict=True))
        ours = part["confidence"]["calibrated"]
        assert numbers["augrc"] == ours["augrc"]
        assert numbers["brier_interval_high"] == ours["brier_interval"][1]


def test_what_cannot_be_told_is_not_logged(run: Run) -> None:
    """An unknown number is left out, and a moved model's row is its own."""
    measured = {
        "confidence": {
            "before": {"brier": 0.3},
            "after": {"brier": 0.2, "auroc": None, "smece_interval": [0.1, None]},
        }
    }
    certificate = Certificate(None, 0.7, 0.95, 0, 0, 0, None)
    known = {"brier": 0.2, "smece_low": 0.1, "certified_share": 0.0}
    assert metrics_of(measured, certificate) == known


def test_the_same_model_is_sent_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the run that holds it, with the working folder's note and without it."""
    for note in (True, False):
        if not note:
            shutil.rmtree(run.work / "tracked")
        assert main(["model", "track", str(run.folder), "--work", str(run.work)]) == 0
        said = capsys.readouterr().out
        assert f"already tracked as run {run.outcome.run.run_id}" in said
        assert f"models:/{NAME}/{run.outcome.run.model_version}" in said
    client = mlflow.MlflowClient(tracking_uri=run.outcome.run.tracking_uri)
    key = client.get_run(run.outcome.run.run_id).data.tags["record_key"]
    asked = f"tags.record_key = '{key}'"
    assert len(client.search_runs([run.outcome.run.experiment_id], asked)) == 1
    version = client.get_model_version(NAME, run.outcome.run.model_version)
    record = record_of(open_folder(run.folder))
    assert version.tags == record.tags
    assert version.description == record.description
    assert record.params["certificate"] in record.description


def test_only_a_whole_model_is_sent(run: Run, tmp_path: Path) -> None:
    """A damaged folder is refused before anything is sent."""
    broken = shutil.copytree(run.folder, tmp_path / "model")
    (broken / "sketch.json").write_text("{}")
    with pytest.raises(InputError, match=r"sketch.json has"):
        track_model(broken, work=Workspace(tmp_path))
    assert not (tmp_path / "mlflow.db").exists()


def test_without_mlflow_a_job_is_done_and_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has not installed it does not want it: no error, and a note that says how to have it."""
    monkeypatch.delitem(sys.modules, "rerank.tracking.client")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    found, (note,) = track_if_installed(run.folder, work=Workspace(tmp_path))
    assert found is None
    assert note.startswith("not tracked: the extra [track] is not installed")
    assert main(["model", "track", str(run.folder), "--work", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir())


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
    work, out = tmp_path / "work", tmp_path / "model"
    shutil.copytree(run.folder, out)  # made, and not yet sent
    command = [
        "calibrate",
        str(small_folder),
        "--out",
        str(out),
        "--work",
        str(work),
        *flags(config),
    ]
    with silent() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert main(command) == 3
    said = capsys.readouterr()
    assert said.err.count("rerank: error:") == 1
    assert "Traceback" not in said.err
    assert f"rerank model track {out} --work {work}" in said.err
    assert run.outcome.report.splitlines()[0] in said.out
    verify_folder(out)
    assert Workspace(work).tracked(sha256_file(out / MANIFEST)) is None


def test_a_server_that_hangs_in_the_middle_costs_no_model(
    served_model: Path,
    server: tuple[str, Failing],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever it stops answering the failure is told; when it is back the model is sent once."""
    address, failing = server
    model = served_model
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    client = mlflow.MlflowClient(tracking_uri=address)
    for healthy in (3, 9):
        failing.asked, failing.healthy = 0, healthy
        failing.mended.clear()
        with monkeypatch.context() as patch:
            patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
            patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
            with pytest.raises(TrackingError, match="is written, but MLflow did not take"):
                track_model(model, work=Workspace(tmp_path))
        failing.mended.set()
        assert Workspace(tmp_path).tracked(sha256_file(model / MANIFEST)) is None
        verify_folder(model)
    failing.healthy = 10**9
    sent = track_model(model, work=Workspace(tmp_path))
    assert not sent.found
    assert track_model(model, work=Workspace(tmp_path)).run_id == sent.run_id
    runs = client.search_runs([sent.experiment_id])
    finished = [r.info.run_id for r in runs if r.info.status == "FINISHED"]
    assert finished == [sent.run_id]
    uri = f"models:/served/{sent.model_version}"
    again = CalibratedReranker.load(uri)
    place = again.folder
    assert again.manifest == CalibratedReranker.load(model).manifest
    del again
    assert not place.exists()  # a copy goes with its model


def test_a_password_of_the_server_is_not_kept(
    served_model: Path,
    server: tuple[str, Failing],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The note in the workspace has the address without it, and is still known as this store's."""
    address, _ = server
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.replace("//", "//ann:secret@"))
    sent = track_model(served_model, work=Workspace(tmp_path))
    assert sent.tracking_uri == address
    (note,) = (tmp_path / "tracked").iterdir()
    assert "secret" not in note.read_text()
    assert track_model(served_model, work=Workspace(tmp_path)) == replace(sent, found=True)


def test_what_the_user_set_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are MLflow's own settings: ours meanwhile, the user's where there is one."""
    from rerank.tracking.client import HTTP_LIMITS, store

    first, second = HTTP_LIMITS
    monkeypatch.setenv(first, "5")
    monkeypatch.delenv(second, raising=False)
    with store("sqlite://"):
        assert os.environ[first] == "5"
        assert os.environ[second] == HTTP_LIMITS[second]
    assert second not in os.environ


# --- run by MLflow ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(run: Run) -> Any:
    """The registered version, as MLflow loads it, while its champion."""
    from rerank.tracking.registry import CHAMPION, set_champion

    uri = run.outcome.run.tracking_uri
    set_champion(NAME, run.outcome.run.run_id, tracking_uri=uri)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        found = mlflow.pyfunc.load_model(f"models:/{NAME}@{CHAMPION}")
    yield found
    mlflow.MlflowClient(tracking_uri=uri).delete_registered_model_alias(NAME, CHAMPION)


def queries(run: Run) -> Any:
    asked = run.plan.report.items[:3]
    return frame({"query_id": [q.query_id for q in asked], "query": [q.text for q in asked]})


def expected(model: CalibratedReranker, asked: Any) -> list[dict[str, Any]]:
    """What `assess` says, row by row."""
    rows = asked.to_dict("records")
    found = model.assess([Query(row["query"], row["query_id"]) for row in rows])
    return [assessment.to_dict(top=TOP) for assessment in found]


def test_mlflow_gives_the_numbers_of_load(
    loaded: Any, model: CalibratedReranker, run: Run, small: LabelledSet
) -> None:
    """`mlflow.pyfunc.load_model` of the champion, with ids and without."""
    asked = queries(run)
    said = loaded.predict(asked)
    assert list(said.columns) == list(OUTPUT_EXAMPLE)
    assert said.to_dict("records") == expected(model, asked)
    bare = loaded.predict(asked[["query"]])
    assert bare["query_id"].tolist() == ["0", "1", "2"]
    assert bare["confidence"].tolist() == said["confidence"].tolist()


def test_an_older_column_is_read(model: CalibratedReranker, run: Run) -> None:
    """`text` is the column of `query` in tables for earlier versions."""
    asked = queries(run)
    older = assess_table(model, asked.rename(columns={"query": "text"}))
    assert older.equals(assess_table(model, asked))


def test_a_row_is_what_rescore_writes(model: CalibratedReranker, run: Run, tmp_path: Path) -> None:
    """One schema of predictions: a line of the batch job has the fields of a row."""
    asked = queries(run)
    records = [{"_id": i, "query": q} for i, q in asked.itertuples(index=False)]
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    rescore(model, file, tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    cut = [line | {"ranking": line["ranking"][:TOP]} for line in lines]
    assert assess_table(model, asked).to_dict("records") == cut


def test_ids_are_kept_as_they_came(model: CalibratedReranker) -> None:
    """Whole numbers too, although pandas makes them fractions where one is missing."""
    asked = pd.DataFrame({"query_id": [7, None], "query": ["sort an array", "mean of a column"]})
    assert assess_table(model, asked)["query_id"].tolist() == ["7", "1"]


def test_mlflow_serves_the_numbers_of_load(
    loaded: Any, model: CalibratedReranker, run: Run, small: LabelledSet
) -> None:
    """The application that `mlflow models serve` runs, asked over HTTP's own carriers."""
    from fastapi.testclient import TestClient
    from mlflow.pyfunc.scoring_server import init

    asked = queries(run)
    client = TestClient(init(loaded))
    records = {"dataframe_records": asked.to_dict("records")}
    answered = client.post("/invocations", json=records)
    assert answered.status_code == 200
    assert answered.json()["predictions"] == expected(model, asked)
    assert client.post("/invocations", json={"inputs": {"word": ["x"]}}).status_code == 400


def test_passages_of_a_query_are_ranked(loaded: Any, model: CalibratedReranker) -> None:
    """A row may bring its own, with any of a passage's fields; another row searches."""
    texts = ["Sort an array along an axis.", "Median of an array, ignoring NaNs."]
    brought = [{"_id": "a", "text": texts[0], "metadata": {"year": 2020}}, {"text": texts[1]}]
    asked = frame({"query": ["sort an array"] * 2, "passages": [brought, None]})
    said = loaded.predict(asked)
    expected = model.rerank("sort an array", [{"id": "a", "text": texts[0]}, texts[1]])
    assert said["confidence"][0] == expected.confidence
    assert [p["doc_id"] for p in said["ranking"][0]] == ["a", "1"]
    assert said["confidence"][1] == model.search("sort an array").confidence


def test_the_signature_is_that_of_the_table(loaded: Any) -> None:
    """Text is needed, an id is not; the output is flat."""
    inputs = {c.name: c.required for c in loaded.metadata.signature.inputs}
    assert inputs == {"query_id": False, "query": True, "passages": False}
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
        with pytest.raises(InputError, match=r"does not give|expected models:/name@alias"):
            CalibratedReranker.load(wrong, tracking_uri=uri)
    monkeypatch.chdir(run.folder)
    with pytest.raises(InputError, match="set MLFLOW_TRACKING_URI"):
        CalibratedReranker.load(asked[0])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"query": ["a", "", None]}, "(?s)row 1: 'query' is empty.*row 2: 'query' should be text"),
        ({"query": ["a", 3]}, "row 1: 'query' should be text, got"),
        ({"query": [""] * 22}, "and 2 more"),
        ({"query": ["a"], "query_id": [1.5]}, "row 0: '_id' should be text or a whole number, got"),
        ({"word": ["a"]}, "expected a column 'query', got"),
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
    none = assess_table(model, {"query": []})
    assert list(none.columns) == list(OUTPUT_EXAMPLE)
    assert none["confidence"].dtype == float


def test_a_run_of_another_store_is_not_this_ones(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that one store knows is still to be sent to another."""
    assert track_model(run.folder, work=Workspace(run.work)).found
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    assert not track_model(run.folder, work=Workspace(tmp_path)).found


def test_a_noted_run_stands_where_its_store_does_not_answer(
    run: Run, tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To finish a job again takes no server; a note of another store is none."""
    key, work = sha256_file(run.folder / MANIFEST), Workspace(tmp_path)
    noted = read_note(key, Workspace(run.work))
    assert noted is not None
    with silent() as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        work.note_tracked(key, asdict(noted))
        with pytest.raises(TrackingError):
            track_model(run.folder, work=work)
        here = replace(noted, tracking_uri=address)
        work.note_tracked(key, asdict(here))
        assert track_model(run.folder, work=work) == here


def test_a_note_of_a_run_that_is_gone_does_not_count(run: Run, tmp_path: Path) -> None:
    """The store was deleted, or its version was: the model is sent again."""
    work = Workspace(tmp_path / "work")
    shutil.copytree(run.work / "tracked", work.path / "tracked")
    noted = read_note(sha256_file(run.folder / MANIFEST), work)
    assert noted is not None
    shutil.copyfile(run.work / "mlflow.db", work.path / "mlflow.db")
    client = mlflow.MlflowClient(tracking_uri=work.tracking_uri)
    client.delete_model_version(NAME, run.outcome.run.model_version)
    again = track_model(run.folder, work=work)
    assert again.run_id == noted.run_id
    assert again.model_version not in (None, "", noted.model_version)


@pytest.mark.parametrize("options", ["", "?timeout=10"])
def test_a_database_may_have_options(options: str) -> None:
    """They are no part of the file's name; other stores have no file."""
    assert sqlite_file(f"sqlite:///runs.db{options}") == Path("runs.db")
    assert sqlite_file("http://localhost:5000") is None


def test_the_code_that_mlflow_runs_is_imported_without_a_warning() -> None:
    """What MLflow says of its own types is not ours to tell."""
    code = "import rerank.batch.mlflow_model"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)

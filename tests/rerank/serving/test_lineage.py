"""What a model was made from, as the Reliability page has it: of each job that makes models."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from server import serving

from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import Feedback
from rerank.jobs.recalibrate import recalibrate
from rerank.jobs.update import export
from rerank.serving.lineage import NOT_RECORDED, lineage
from rerank.storage.files import package_version, sha256_file
from rerank.storage.folder import MANIFEST, Workspace, with_digest
from rerank.types import Query

Parts = dict[str, dict[str, Any]]


def made_from(folder: Path, work: Path) -> Parts:
    """What the page is told by a server that knows this working folder."""
    with serving(folder, work=work) as started:
        found: Parts = httpx.get(f"{started.url}/v1/reliability", timeout=600).json()["made_from"]
    return found


def test_a_calibrated_model_names_its_data_its_networks_and_its_run(run: Any) -> None:
    """As its manifest and MLflow have them."""
    from mlflow import MlflowClient

    manifest = json.loads((run.folder / MANIFEST).read_text())
    told, tracked = made_from(run.folder, run.work), run.outcome.run
    kept = MlflowClient(tracking_uri=tracked.tracking_uri).get_run(tracked.run_id)
    assert told["Labels"]["labelled set"] == manifest["dataset"]["name"]
    assert told["Labels"]["its sha256"] == manifest["dataset"]["digest"]
    assert told["Labels"]["queries fitted on"] == manifest["queries"]["fit"]
    scoring = told["Models that score"]
    assert (scoring["encoder"], scoring["reranker"]) == ("minilm", "minilm-reranker")
    assert scoring["reranker's sha256"] == manifest["fingerprints"]["reranker"]
    assert told["Made by"]["package"] == f"calibrated-rerank {package_version()}"
    assert told["Made by"]["command"] == kept.data.tags["mlflow.source.name"]
    commit = kept.data.tags.get("mlflow.source.git.commit", NOT_RECORDED)
    assert told["Made by"]["git commit"] == commit
    assert told["Made by"]["time"].endswith(" UTC")
    assert told["MLflow run"] == {
        "run": tracked.run_id,
        "experiment": tracked.model_name,
        "registered as": f"{tracked.model_name}, version {tracked.model_version}",
        "store": "sqlite: mlflow.db",
    }
    assert "Made from another model" not in told
    assert str(run.work) not in json.dumps(told)


def test_a_recalibrated_model_names_its_parent(run: Any, tmp_path: Path) -> None:
    """By its version and the sha256 of its manifest, and how many labels moved it."""
    labels = [
        Feedback(Query(f"sort array number {i}", str(i)), str(i), i % 2 == 0, frozenset())
        for i in range(12)
    ]
    parent = CalibratedReranker.load(run.folder)
    recalibrate(parent, labels, tmp_path / "moved", work=tmp_path)
    told = made_from(tmp_path / "moved", tmp_path)
    assert told["Made from another model"] == {
        "recalibrated from version": parent.version,
        "sha256 of its manifest": sha256_file(run.folder / MANIFEST),
        "on labels": "12, 6 of them right",
    }
    assert told["MLflow run"]["run"] != run.outcome.run.run_id


def test_an_exported_model_names_the_one_that_was_logged(run: Any, tmp_path: Path) -> None:
    """It has no run of its own."""
    out = export(CalibratedReranker.load(run.folder), tmp_path / "out")
    logged = sha256_file(run.folder / MANIFEST)
    told = made_from(out, run.work)
    part = {"exported from the manifest with sha256": logged}
    assert told["Made from another model"] == part
    assert f"or {logged} before it was exported" in told["MLflow run"]["run"]


def test_where_nothing_is_noted_it_says_how_the_run_is_found(run: Any, tmp_path: Path) -> None:
    """By the tag that every logged run has; the same of a note that another version wrote."""
    from mlflow import MlflowClient

    told = made_from(run.folder, tmp_path)["MLflow run"]["run"]
    key = sha256_file(run.folder / MANIFEST)
    assert f"record_key = {key}" in told
    client = MlflowClient(tracking_uri=run.outcome.run.tracking_uri)
    (found,) = client.search_runs([run.outcome.run.experiment_id], f"tags.record_key = '{key}'")
    assert found.info.run_id == run.outcome.run.run_id
    Workspace(tmp_path).note_tracked(key, {"run_id": "1", "unknown": 1})
    assert made_from(run.folder, tmp_path)["MLflow run"]["run"] == told
    older = {k: v for k, v in asdict(run.outcome.run).items() if k not in NEW}
    Workspace(tmp_path).note_tracked(key, older)
    told = made_from(run.folder, tmp_path)
    assert told["MLflow run"]["run"] == run.outcome.run.run_id
    assert [told["Made by"][name] for name in UNRECORDED] == [NOT_RECORDED] * 3


UNRECORDED = ("command", "git commit", "time")
NEW = ("experiment", "command", "commit", "started")  # fields that notes did not have at first


@pytest.mark.parametrize("store", ["https://ann:secret@host/x?token=secret", "sqlite:////secret/a"])
def test_no_secret_is_shown(run: Any, tmp_path: Path, store: str) -> None:
    """Neither of the store nor of the command, even if the note or MLflow holds one."""
    command = "rerank recalibrate m --journal 'postgresql://ann:secret@host/db?password=secret'"
    noted = replace(run.outcome.run, tracking_uri=store, command=command)
    Workspace(tmp_path).note_tracked(sha256_file(run.folder / MANIFEST), asdict(noted))
    told = made_from(run.folder, tmp_path)
    assert told["Made by"]["command"] == "rerank recalibrate m --journal postgresql://host/db"
    assert "secret" not in json.dumps(told)


def test_a_folder_of_an_earlier_version_has_what_it_has(run: Any, place: Path) -> None:
    """It is served as before, and rows that it lacks are left out."""
    manifest = json.loads((place / MANIFEST).read_text())
    without = {k: v for k, v in manifest.items() if k not in ("made_by", "fitted_around")}
    (place / MANIFEST).write_text(json.dumps(with_digest(without)))
    told = made_from(place, run.work)
    assert set(told["Made by"].values()) == {NOT_RECORDED}
    assert "Fitted around other labelled sets" not in told
    assert told["Labels"]["labelled set"] == manifest["dataset"]["name"]
    bare = {key: manifest[key] for key in ("config", "fingerprints", "dataset", "queries")}
    assert lineage(bare, {}, None, key="k")["Labels"]["calibrator"] == "none: not calibrated"

"""`--json` and `--quiet`: one object on stdout for programs, and nothing beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, flags

from rerank.cli import COMMANDS
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.storage.files import sha256_file

Run = Any  # the session's run, see conftest


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """The object that a command prints, which nothing stands beside."""

    def ask(*arguments: object) -> Any:
        assert call(*arguments, "--json", "--quiet") in (0, 1)
        printed = capsys.readouterr()
        assert printed.err == ""
        return json.loads(printed.out)

    return ask


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"serve"}))
def test_every_command_that_prints_results_can_print_json(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the server have the option."""
    assert call(*name.split(), "--help") == 0
    assert "--json " in capsys.readouterr().out


def test_calibrate(run: Run, small_folder: Path, config: Config, told: Any) -> None:
    """The model, the sentences of the headline, its own figures, and its run."""
    where = ("--out", run.folder, "--work", run.work)
    found = told("calibrate", small_folder, *where, *flags(config))
    assert found["model"] == str(run.folder)
    assert found["made"] is False
    assert found["headline"][0].startswith("Top passage: ")
    assert found["next"].startswith(("rerank", "label"))
    assert 0 <= found["measured"]["smece"] <= 1
    assert found["run_id"] == run.outcome.run.run_id


def test_rescore(run: Run, tmp_path: Path, told: Any) -> None:
    """How many rows were answered and rejected, and where."""
    (tmp_path / "q.jsonl").write_text('{"_id": "1", "query": "sort an array"}\n')
    out = tmp_path / "p.jsonl"
    found = told("rescore", run.folder, tmp_path / "q.jsonl", "--out", out, "--work", run.work)
    assert (found["out"], found["answered"], found["rejected"]) == (str(out), 1, 0)


def test_recalibrate(run: Run, tmp_path: Path, told: Any) -> None:
    """The new model."""
    rows = [{"query": f"sort array number {i}", "right": i % 2 == 0} for i in range(12)]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    where = ("--labels", tmp_path / "labels.jsonl", "--work", tmp_path / "work")
    found = told("recalibrate", run.folder, *where, "--out", tmp_path / "moved")
    assert found["model"] == str(tmp_path / "moved")
    assert (tmp_path / "moved" / "manifest.json").exists()
    assert found["worse"] == []


def test_promote(run: Run, small_folder: Path, told: Any) -> None:
    """Whether it is the champion, and each check."""
    never = ("--most-smece", "0.0001")
    found = told("model", "promote", run.folder, small_folder, "--work", run.work, *never)
    assert found["promoted"] is False
    assert {"name", "asked", "measured", "holds"} == set(found["checks"][0])


def test_dataset_check(small: LabelledSet, small_folder: Path, told: Any) -> None:
    """The counts and the digest of the set."""
    found = told("data", "check", small_folder)
    assert (found["passages"], found["digest"]) == (len(small.corpus), small.digest())


def test_ingest_and_update(tmp_path: Path, told: Any) -> None:
    """What was read, and what changed."""
    docs, corpus, index = tmp_path / "docs", tmp_path / "corpus", tmp_path / "index"
    docs.mkdir()
    (docs / "a.md").write_text("# Pump\n\nOpen the valve before the pump starts.\n")
    found = told("data", "ingest", docs, "--out", corpus)
    assert (found["corpus"], found["files"]) == (str(corpus), 1)
    assert told("data", "index", corpus, "--out", index) == {"index": str(index), "passages": 1}
    (docs / "b.md").write_text("# Filter\n\nClean the filter each month.\n")
    told("data", "ingest", docs, "--out", corpus)
    changed = told("model", "update", index, corpus)
    assert (changed["updated"], changed["passages"], changed["added"]) == (str(index), 2, 1)


def test_quickstart_init_and_export(tmp_path: Path, told: Any) -> None:
    """A folder of documents to a model; the second time it is updated."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    (docs / "a.md").write_text("# Pump\n\nOpen the valve first.\n\n# Filter\n\nClean it monthly.\n")
    where = (docs, "--out", out, "--work", tmp_path / "work", "--no-serve")
    first = told("quickstart", *where)
    assert (first["ingested"]["passages"], first["updated"]) == (2, None)
    assert told("quickstart", *where)["updated"]["added"] == 0
    found = told(
        "model", "init", out / "corpus", "--out", tmp_path / "model", "--work", tmp_path / "work"
    )
    assert found == {"model": str(tmp_path / "model"), "calibrated": False}
    exported = told("model", "export", first["model"], "--out", tmp_path / "deployed")
    sha256 = sha256_file(tmp_path / "deployed" / "manifest.json")
    assert exported == {"model": str(tmp_path / "deployed"), "manifest_sha256": sha256}

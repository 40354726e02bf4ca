"""`rerank rescore`: what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, refused

Run = Any  # the session's run, see conftest


def test_rescore_writes_a_line_a_query(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the queries' order, counted; the same by the folder and by MLflow's name for it."""
    queries, out = tmp_path / "queries.jsonl", tmp_path / "predictions.jsonl"
    queries.write_text("\n".join((small_folder / "queries.jsonl").read_text().split("\n")[4::-1]))
    arguments = ("rescore", run.folder, queries, "--out", out, "--work", run.work)
    assert call(*arguments) == 0
    assert "5 predictions" in capsys.readouterr().out
    asked = [json.loads(line)["_id"] for line in queries.read_text().splitlines()]
    found = [json.loads(line)["query_id"] for line in out.read_text().splitlines()]
    assert found == asked
    tracked, again = run.outcome.run, tmp_path / "again.jsonl"
    named = f"models:/{tracked.model_name}/{tracked.model_version}"
    assert call("rescore", named, queries, "--out", again, "--work", run.work) == 0
    assert again.read_bytes() == out.read_bytes()


def test_rescore_tells_rejected_rows_by_its_exit_code(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 where rows were rejected, with their count and file; 2 with `--strict`, at the first."""
    queries, out = tmp_path / "queries.jsonl", tmp_path / "predictions.parquet"
    queries.write_text('{"_id": "a", "text": "sort an array"}\n{"_id": "b"}\n')
    arguments = ("rescore", run.folder, queries, "--out", out, "--work", run.work)
    assert call(*arguments) == 3
    printed = capsys.readouterr().out
    assert f"{out}: 1 predictions" in printed
    assert f"{out}.rejected.jsonl: 1 rows were rejected" in printed
    assert "queries.jsonl:2: 'query' is missing" in refused(capsys, *arguments, "--strict")

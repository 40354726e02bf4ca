"""`rerank evaluate`: what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, refused

Run = Any  # the session's run, see conftest


def test_an_unknown_split_is_refused(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the splits that there are."""
    message = refused(
        capsys, "evaluate", run.folder, small_folder, "--split", "tset", "--work", tmp_path
    )
    assert "'tset'" in message
    assert "'test'" in message


def test_a_split_without_queries_is_refused(
    run: Run, copied_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty split file is a split, and there is nothing in it to measure."""
    (copied_set / "splits/later.txt").write_text("")
    refused(capsys, "evaluate", run.folder, copied_set, "--split", "later", "--work", tmp_path)


def test_a_second_model_is_measured_beside_the_first(
    run: Run, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same one gains nothing, and says so; its options are refused without it."""
    where = ("evaluate", run.folder, small_folder, "--work", run.work)
    assert call(*where, "--then", run.folder, "--price-per-1000", "2", "--json") == 0
    cascade = json.loads(capsys.readouterr().out)["cascade"]
    assert (cascade["worth_it"], cascade["price"], cascade["most"]) == (False, 2.0, 0.4)
    assert call(*where, "--then", run.folder) == 0
    assert "Not worth it" in capsys.readouterr().out
    assert "--then-share" in refused(capsys, *where, "--then-share", "0.2")

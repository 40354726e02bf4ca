"""`rerank calibrate`: what it prints and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import call, flags, refused

from rerank.config import Config

Run = Any  # the session's run, see conftest


@pytest.mark.parametrize(
    "options",
    [
        ("--calibrator", "spline"),
        ("--rank-by", "hope"),
        ("--high", "0.1"),
        ("--medium", "nan"),
        ("--rerank-depth", "0"),
        ("--pool", "-5"),
        ("--pool", "many"),
        ("--no-such-option",),
    ],
)
def test_options_out_of_range_are_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """A value that no run can use is told at once, with exit code 2 and no traceback."""
    out = tmp_path / "model"
    assert call("calibrate", small_folder, "--out", out, "--work", tmp_path, *options) == 2
    err = capsys.readouterr().err
    assert "error: " in err
    assert "Traceback" not in err
    assert not out.exists()


def test_a_negative_bound_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--max-queries -40` is bad input, and not "all but the last forty"."""
    out = tmp_path / "model"
    given = ("calibrate", small_folder, "--out", out, "--max-queries", "-40", "--work", tmp_path)
    assert "-40" in refused(capsys, *given)


def test_a_metadata_that_no_query_has_is_refused(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt `--group-by` would group nothing; the sentence names what the queries have."""
    given = ("calibrate", few, "--out", tmp_path / "out", "--group-by", "artcle")
    message = refused(capsys, *given)
    assert "'artcle'" in message
    assert "answerable" in message
    assert not (tmp_path / "out").exists()


def test_calibrating_again_says_that_it_is_there(
    run: Run,
    config: Config,
    small_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command finds its model, prints the report, does nothing, and names its run."""
    asked = ("calibrate", small_folder, "--out", run.folder, "--work", run.work, *flags(config))
    assert call(*asked, "--verbose") == 0
    out = capsys.readouterr().out
    assert all(line in out for line in run.outcome.report.splitlines())
    assert "already" in out
    assert f"already tracked as run {run.outcome.run.run_id}" in out
    assert f"models:/{run.outcome.run.model_name}/{run.outcome.run.model_version}" in out

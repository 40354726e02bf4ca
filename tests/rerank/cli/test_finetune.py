"""`rerank finetune`: what it refuses before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import refused


@pytest.mark.parametrize("limit", ["many", "-3", "1.5"])
def test_a_limit_that_is_no_number_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    """`finetune FOLDER:LIMIT` takes a count of queries."""
    given = f"{small_folder}:{limit}"
    assert given in refused(capsys, "finetune", given, "--out", tmp_path / "out")


def test_finetuning_on_an_unknown_split_is_refused(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the splits that there are."""
    given = ("finetune", few, "--out", tmp_path / "out", "--split", "tset")
    message = refused(capsys, *given)
    assert "'tset'" in message
    assert "'test'" in message


def test_an_unknown_split_is_refused_before_the_work(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt split does not cost the indexing of a corpus."""
    refused(capsys, "finetune", few, "--out", tmp_path / "out", "--split", "tset")
    assert not (tmp_path / "out").exists()

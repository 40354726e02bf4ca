"""`rerank data index`: what it writes and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call, refused


def test_an_unknown_language_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A language without a stemmer is bad input, and no traceback."""
    out = tmp_path / "index"
    assert "klingon" in refused(
        capsys, "data", "index", small_folder, "--out", out, "--language", "klingon"
    )


def test_index_writes_a_folder(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`index` writes a folder and counts the passages."""
    out = tmp_path / "index"
    assert call("data", "index", few, "--out", out, "--encoder-max-length", "32") == 0
    assert "5 passages indexed" in capsys.readouterr().out
    assert (out / "manifest.json").is_file()

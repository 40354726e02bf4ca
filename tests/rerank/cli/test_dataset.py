"""`rerank data`: what it builds, counts and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import call, refused

from rerank.data.labelled_set import LabelledSet


def test_broken_json_is_told_with_its_lines(
    tmp_path: Path, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every bad line stands on stderr with file and line number."""
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d"\n{"_id": "d", "text": "x"}\n[]\n')
    (tmp_path / "queries.jsonl").write_text("nonsense\n")
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert call("data", "check", tmp_path) == 2
    err = capsys.readouterr().err
    for place in ("corpus.jsonl:1", "corpus.jsonl:3", "queries.jsonl:1"):
        assert f"{tmp_path / place}: " in err
    assert "Traceback" not in err


def test_an_unknown_bundled_set_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the sets that can be built."""
    message = refused(capsys, "data", "build", "pydatta", "--out", tmp_path / "set")
    assert "'pydatta'" in message
    assert "pydata_questions" in message


def test_check_counts_what_is_there(
    small: LabelledSet, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dataset check` prints the counts and the digest of the set."""
    assert call("data", "check", small_folder) == 0
    out = capsys.readouterr().out
    printed = dict(re.findall(r"^(\w+)\s+(\d+)$", out, re.MULTILINE))
    assert printed["passages"] == str(len(small.corpus))
    assert printed["test_queries"] == str(len(small.splits["test"]))
    assert printed["groups"] == str(len({small.group(q) for q in small.queries}))
    assert small.digest() in out

"""The file of judgements: several write at once, and a line that was never finished is no line."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import Popen

import pytest

from rerank.errors import InputError
from rerank.labelling.judgements import JudgementFile

WRITER = """
import sys
from pathlib import Path
from rerank.labelling.judgements import JudgementFile
file = JudgementFile(Path(sys.argv[1]))
for i in range(40):
    file.append([{"do": "judge", "by": sys.argv[2], "i": i, "text": "x" * 5000}])
"""


def test_two_processes_write_and_no_line_is_lost(tmp_path: Path) -> None:
    """Every line of both, whole, those of each in order."""
    path = tmp_path / "judgements.jsonl"
    started = [Popen([sys.executable, "-c", WRITER, path, name]) for name in ("ada", "ben")]
    assert [one.wait(600) for one in started] == [0, 0]
    found = JudgementFile(path).read()
    for name in ("ada", "ben"):
        assert [e["i"] for e in found if e["by"] == name] == list(range(40))


def test_an_unfinished_line_is_no_line_and_goes(tmp_path: Path) -> None:
    """What is before it stays; what is written next does not hang on to it."""
    file = JudgementFile(tmp_path / "judgements.jsonl")
    assert file.read() == []
    file.append([{"do": "skip", "i": 1}])
    with file.path.open("a") as torn:
        torn.write('{"i": 2, "te')
    assert file.read() == [{"do": "skip", "i": 1}]
    file.append([{"do": "skip", "i": 3}, {"do": "skip", "i": 4}])
    assert [e["i"] for e in file.read()] == [1, 3, 4]


def test_a_line_that_is_broken_is_named(tmp_path: Path) -> None:
    """The file and the number of the line."""
    file = JudgementFile(tmp_path / "judgements.jsonl")
    file.path.write_text('{"do": "skip"}\nnothing\n')
    with pytest.raises(InputError, match=r"judgements.jsonl:2: expected a JSON object"):
        file.read()


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people would overwrite each other's judgements there."""
    monkeypatch.setattr("rerank.storage.files.lock", lambda *_, **__: False)
    with pytest.raises(InputError, match="this file system has no locks"):
        JudgementFile(tmp_path / "judgements.jsonl").append([{"do": "skip"}])

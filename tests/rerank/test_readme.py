"""The README's commands and Python are run, in order, in a folder of their own, on a small set."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.cli import main
from rerank.data.beir import write_labelled_set
from rerank.data.labelled_set import LabelledSet

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


COMMANDS = [
    line[2:] for block in _blocks("console") for line in block.splitlines() if line[:2] == "$ "
]


@pytest.fixture(scope="module")
def place(run: Any, small: LabelledSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small set where the README has `pydata`, and some queries.

    Of the session's run it has the index and the scores, which would be made again.
    """
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(run.work / "index", folder / "work" / "index")
    shutil.copy(run.work / "scores.sqlite", folder / "work")
    splits = {"train": small.splits["train"][:40], "test": small.splits["test"][:12]}
    kept = {i for ids in splits.values() for i in ids}
    queries = {i: q for i, q in small.queries.items() if i in kept}
    qrels = {i: q for i, q in small.qrels.items() if i in kept}
    cut = replace(small, queries=queries, qrels=qrels, splits=splits)
    write_labelled_set(cut, folder / "datasets" / "pydata")
    (folder / "queries.jsonl").write_text('{"_id": "1", "text": "sort an array"}\n')
    labels = [{"query": f"sort array number {i}", "right": i % 2 == 0} for i in range(12)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    return folder


@pytest.fixture
def rerank(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], str]:
    """Runs one `rerank` command there; what it prints."""
    monkeypatch.chdir(place)

    def run(arguments: list[str]) -> str:
        no = 1 if arguments[0] in ("drift", "promote") else 0  # an answer, not a failure
        code = main(arguments)
        printed = capsys.readouterr()
        assert code in (0, no), f"{arguments}\n{printed.out}\n{printed.err}"
        return printed.out

    return run


def _python(code: str, place: Path) -> str:
    """What the code prints in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_commands_run(rerank: Callable[[list[str]], str]) -> None:
    """Every `rerank` command of the README runs, in its order, and prints something."""
    commands = [shlex.split(c)[1:] for c in COMMANDS if c.startswith("rerank ")]
    assert len(commands) >= 5
    assert all(rerank(command) for command in commands)


def test_python_runs(place: Path, rerank: Callable[[list[str]], str]) -> None:
    """The README's Python runs after its commands; asking gives a confidence a question."""
    blocks = alone, asking, giving = _blocks("python")
    assert all(len(code.strip().splitlines()) <= 12 for code in blocks)
    assert _python(alone, place).startswith("From 0.")
    if not (place / "work" / "model").exists():  # this test alone
        rerank(["calibrate", "datasets/pydata", "--out", "work/model"])
    printed = _python(asking, place)
    assert len(re.findall(r"^[01]\.\d\d ", printed, flags=re.MULTILINE)) == 2
    printed = _python(giving, place)
    assert re.fullmatch(r"([01]\.\d\d .+\n){3}confidence 0\.\d\d\n", printed)


def test_make_targets_exist() -> None:
    """Every `make` command of the README is a target that `make help` tells of."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    wanted = {c.split()[1] for c in COMMANDS if c.startswith("make ")} | {"bench"}
    assert wanted <= set(re.findall(r"^([a-z]+):.*## ", makefile, flags=re.MULTILINE))


def test_folders_exist() -> None:
    """The README's map names every folder of the project's surface, and each is there."""
    for name in ("calibration", "rerank", "datasets", "models", "tests"):
        assert f"{name}/" in README
        assert (ROOT / name).is_dir()

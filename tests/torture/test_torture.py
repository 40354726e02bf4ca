"""A short run of what `make torture` does for hours."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Run = Any  # the session's run, see conftest
HERE = Path(__file__).parent


def script(name: str) -> ModuleType:
    """A script of the folder, as a module."""
    spec = importlib.util.spec_from_file_location(f"torture_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", sorted((HERE / "corpus").glob("*/*")), ids=lambda p: f"{p.parent.name}: {p.name}"
)
def test_the_corpus_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    """Each input of the fuzzer's corpus, with a sentence where it is refused."""
    script("readers").read(path.parent.name, tmp_path, path.read_bytes())


@pytest.fixture(scope="module")
def torture() -> ModuleType:
    return script("model_folder")


def test_mutated_folders_are_refused_or_identical(run: Run, torture: ModuleType) -> None:
    """Of each kind some; anything else than a refusal or the same model raises."""
    told = torture.attack(run.folder, count=150, seed=1)
    assert told["changed: refused"] > 50
    assert told["changed: identical"] > 0
    assert told["forged: refused"] > 10
    assert told["forged: another model, with probabilities"] > 0


def test_the_attack_can_succeed(
    run: Run, torture: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that believes any manifest is found out."""
    monkeypatch.setattr("rerank.storage.folder.with_digest", lambda manifest: manifest)
    with pytest.raises(SystemExit, match="another model was taken"):
        torture.attack(run.folder, count=400, seed=1)


def test_a_killed_journal_keeps_what_was_confirmed(tmp_path: Path) -> None:
    """A few of the hundred deaths; how long a commit takes here is not looked at."""
    kill = script("journal")
    kill.torture(f"sqlite:///{tmp_path / 'journal.db'}", 4, random.Random(1))
    kill.check_file(tmp_path / "journal.db")

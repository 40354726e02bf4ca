"""What several commands refuse alike: exit code 2 and one sentence, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import refused

Run = Any  # the session's run, see conftest


@pytest.mark.parametrize(
    "arguments",
    [
        ("data", "check", "NOWHERE"),
        ("data", "index", "NOWHERE", "--out", "OUT"),
        ("train", "cross-encoder", "NOWHERE", "--out", "OUT"),
        ("calibrate", "NOWHERE", "--out", "OUT"),
        ("evaluate", "MODEL", "NOWHERE"),
        ("evaluate", "NOWHERE", "SET"),
        ("search", "NOWHERE", "a question"),
        ("rescore", "NOWHERE", "SET/queries.jsonl", "--out", "OUT"),
        ("rescore", "MODEL", "NOWHERE", "--out", "OUT"),
    ],
)
def test_a_missing_folder_is_named(
    run: Run,
    small_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    """Exit code 2 and one sentence that names what is not there; nothing is written."""
    places = {"NOWHERE": tmp_path / "nowhere", "OUT": tmp_path / "out", "MODEL": run.folder}
    places |= {"SET": small_folder, "SET/queries.jsonl": small_folder / "queries.jsonl"}
    message = refused(capsys, *(places.get(a, a) for a in arguments))
    assert str(tmp_path / "nowhere") in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--encoder", "--reranker"])
def test_an_unknown_model_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """The sentence names the model asked for and the bundled ones."""
    out = tmp_path / "model"
    arguments = ("calibrate", small_folder, "--out", out, "--work", tmp_path, option, "minilmm")
    message = refused(capsys, *arguments)
    assert "'minilmm'" in message
    assert "minilm-reranker" in message
    assert not out.exists()


def test_a_hub_model_without_a_hub_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the hub cannot be reached the sentence says which model it did not give."""
    message = refused(
        capsys,
        "data",
        "index",
        small_folder,
        "--out",
        tmp_path / "i",
        "--encoder",
        "nobody/nothing@v1",
    )
    assert "nobody/nothing@v1" in message


@pytest.mark.parametrize("command", ["calibrate", "data index"])
def test_a_folder_that_exists_is_not_replaced(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The sentence names the folder, and what is in it stays, `--overwrite` or not."""
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("ten years of work")
    for more in ((), ("--overwrite",)):
        assert str(out) in refused(capsys, *command.split(), small_folder, "--out", out, *more)
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_a_model_is_not_replaced_by_an_index(
    run: Run, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--overwrite` replaces a folder of the same kind only."""
    before = (run.folder / "manifest.json").read_bytes()
    message = refused(capsys, "data", "index", small_folder, "--out", run.folder, "--overwrite")
    assert str(run.folder) in message
    assert (run.folder / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("name", ["theirs.jsonl", "theirs.csv", "model"])
def test_what_evaluate_measures_is_a_model_or_predictions(
    name: str, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name of neither could have been meant as either."""
    message = refused(capsys, "evaluate", tmp_path / name, small_folder)
    assert str(tmp_path / name) in message
    assert "model folder" in message
    assert "file of predictions" in message


@pytest.mark.parametrize("command", ["quickstart", "watch journal", "data ingest", "calibrate"])
def test_a_name_that_is_no_text_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """No URL of a database holds it, and nothing is done before that is noticed."""
    out = tmp_path / "out\udcff"
    first = f"sqlite:///{out}" if command == "watch journal" else tmp_path
    rest = () if command == "watch journal" else ("--out", out)
    assert "UTF-8" in refused(capsys, *command.split(), first, *rest)
    assert not list(tmp_path.iterdir())

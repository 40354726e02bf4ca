"""What the command line tells people: versions, texts, interruptions, refusals."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import flags

from rerank.cli import main, parse
from rerank.commands.command import Command
from rerank.config import Config

Run = Any  # the session's run, see conftest


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the package's."""
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("rerank ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["answer", "model", "--min-k", "1", "a question"],
        ["answer", "--min-k", "1", "model", "a question"],
        ["answer", "model", "a question", "--min-k", "1"],
    ],
)
def test_options_may_stand_anywhere(arguments: list[str]) -> None:
    """Also before a query that may be left out."""
    _, options = parse(arguments)
    assert (str(options.model), options.query, options.min_k) == ("model", "a question", 1)


def test_a_word_too_many_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One query is taken, and a second one is told."""
    with pytest.raises(SystemExit) as stop:
        parse(["answer", "model", "--min-k", "1", "a question", "another"])
    assert stop.value.code == 2
    assert "unrecognized arguments: another" in capsys.readouterr().err


def test_search_gives_texts_and_an_id_a_query(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """One object per query: its text, an id of its own, and every passage with title and text."""
    asked = ["fill missing values", "sort an array"]
    assert main(["search", str(run.folder), *asked, "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(f["query_id"], f["query"]) for f in found] == [("1", asked[0]), ("2", asked[1])]
    for passage in found[0]["ranking"]:
        assert passage["text"]
        assert {"doc_id", "title", "relevance", "logit"} <= set(passage)


def test_an_interrupted_calibration_says_that_it_resumes(
    run: Run, config: Config, small_folder: Path, tmp_path: Path
) -> None:
    """Ctrl-C while it works: exit code 130, one line, nothing left beside the folder."""
    out = tmp_path / "models" / "model"
    arguments = ["calibrate", str(small_folder), "--out", str(out), "--work", str(tmp_path / "w")]
    arguments += flags(config)
    code = f"""
import os, signal
from rerank.cli import main
import rerank.fitting.scored_plan as scored_plan
signal.signal(signal.SIGINT, signal.default_int_handler)  # some shells start us with it ignored
scored_plan.fit_prior = lambda *_: os.kill(os.getpid(), signal.SIGINT)
raise SystemExit(main({arguments!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr.endswith("rerank: interrupted: run the same command again to resume\n")
    assert list(out.parent.iterdir()) == []


def test_a_folder_that_exists_names_the_flag(
    run: Run, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal says how to replace it."""
    assert main(["data", "index", str(small_folder), "--out", str(run.folder)]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_an_option_out_of_bounds_is_told_before_the_data_are_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The flag and its bounds; the folder, which does not exist, is not spoken of."""
    assert main(["calibrate", "nowhere", "--out", "x", "--pool", "3"]) == 2
    assert capsys.readouterr().err == (
        "rerank: error: --pool should be a whole number, at least 10, got 3\n"
    )


def _wrapped(error: OSError, sentence: str) -> OSError:
    made = OSError(sentence)
    made.__cause__ = error
    return made


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "resumes", "expected"),
    [
        (FULL, False, "No space left on device; make room and run the same command again"),
        (FULL, True, "No space left on device; make room and run the same command again to resume"),
        (
            OSError(errno.EDQUOT, "Disk quota exceeded", "/work/out"),
            True,
            "/work/out: Disk quota exceeded; make room and run the same command again to resume",
        ),
        (
            _wrapped(FULL, "/cache: nothing can be kept there"),
            False,
            "/cache: nothing can be kept there; make room and run the same command again",
        ),
        (OSError(errno.EACCES, "Permission denied", "/out"), True, "/out: Permission denied"),
    ],
)
def test_a_full_disk_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    resumes: bool,
    expected: str,
) -> None:
    """What is full where it is known, and whether the same command goes on where it stopped."""

    def fail() -> None:
        raise error

    options = argparse.Namespace(quiet=True)
    command = Command(fail, "", resumes)
    monkeypatch.setattr("rerank.cli.parse", lambda _: (command, options))
    assert main([]) == 2
    assert capsys.readouterr().err == f"rerank: error: {expected}\n"


@pytest.mark.parametrize("words", [["--help"], ["data", "--help"]])
def test_a_reader_that_has_stopped(words: list[str]) -> None:
    """As after `head`: code 141, and no traceback."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "rerank.cli", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")

"""What the commands say of themselves: help with an example, light and complete."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from command_line import call
from processes import run_python

from rerank.cli import COMMANDS, FAMILIES, GROUPS, find, parse
from rerank.commands.command import parameters

HEAVY = {"torch", "sklearn", "mlflow", "pandas", "matplotlib", "transformers", "onnxruntime"}
HEAVY |= {"sentence_transformers", "scipy", "rank_bm25"}


THIRTEEN = {
    *("quickstart", "search", "answer", "rescore", "serve"),
    *("calibrate", "evaluate", "recalibrate", "model"),
    *("data", "label", "watch", "train"),
}


def test_thirteen_entries_in_four_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """`rerank --help` names each on a line of its own, and no other."""
    assert call("--help") == 0
    lines = re.findall(r"^  ([\w-]+) {2,}\S", capsys.readouterr().out, re.MULTILINE)
    assert len(lines) == 13
    assert set(lines) == THIRTEEN == {name for names in GROUPS.values() for name in names}
    assert len(GROUPS) == 4
    assert {name.partition(" ")[0] for name in COMMANDS} == THIRTEEN
    assert {name.partition(" ")[0] for name in COMMANDS if " " in name} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_lists_its_commands(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with a line of help; without a second word they are named in the error."""
    below = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{family} ")]
    assert call(family, "--help") == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^  {name} +\S", out, re.MULTILINE) for name in below)
    assert call(family) == 2
    err = capsys.readouterr().err
    assert all(name in err for name in below)


@pytest.mark.parametrize("name", [name for name in COMMANDS if " " in name])
def test_a_second_word_alone_is_told_its_first(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As commands were called before they had families, such as `update`."""
    assert call(name.split()[1], "work/model") == 2
    assert f"`rerank {name}`" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` exits with 0 and explains every option; the example is of this very command."""
    command = find(name)
    assert call(*name.split(), "--help") == 0
    out = capsys.readouterr().out
    assert f"example:\n  rerank {name} {command.example}\n" in out
    for x in parameters(command.function):
        assert x.option.help, f"{x.name} says nothing"
        if not x.positional:
            assert f"--{x.name.replace('_', '-')}" in out
    assert parse([*name.split(), *shlex.split(command.example)])[0] == command


def test_help_is_light() -> None:
    """`rerank --help` imports none of the heavy libraries."""
    code = """
import json, sys
from rerank.cli import main
try:
    main(["--help"])
except SystemExit:
    print(json.dumps(sorted({m.split(".")[0] for m in sys.modules})))
"""
    modules = set(json.loads(run_python(code).splitlines()[-1]))
    assert "rerank" in modules
    assert not modules & HEAVY


def test_no_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A bare `rerank` shows how it is used."""
    assert call() == 2
    assert "usage: rerank" in capsys.readouterr().err

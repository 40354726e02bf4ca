"""What the commands say of themselves: help with an example, light and complete."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator

import pytest
from command_line import call
from processes import run_python

from rerank.commands.parser import parser

HEAVY = {"torch", "sklearn", "mlflow", "pandas", "matplotlib", "transformers", "onnxruntime"}
HEAVY |= {"sentence_transformers", "scipy", "rank_bm25"}


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command that runs something, with its parser, from the parser's own list."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield words, parser
    for group in groups:
        for name, below in group.choices.items():
            yield from commands(below, (*words, name))


COMMANDS = dict(commands(parser()))


def test_the_commands_are_those_of_the_readme() -> None:
    """Nothing is missing of what a user was promised."""
    promised = {"dataset build", "dataset check", "index", "finetune", "calibrate"}
    promised |= {"evaluate", "search", "rescore"}
    assert promised <= {" ".join(words) for words in COMMANDS}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` exits with 0 and explains every option."""
    assert call(*words, "--help") == 0
    out = capsys.readouterr().out
    assert "example:" in out
    for action in COMMANDS[words]._actions:
        assert action.help, f"{action.dest} says nothing"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_example_of_a_command_can_be_parsed(words: tuple[str, ...]) -> None:
    """The example in the help is one that the parser takes, for this very command."""
    found = re.findall(r"^ +rerank (.+)$", COMMANDS[words].epilog or "", re.MULTILINE)
    assert found
    for line in found:
        parts = shlex.split(line)
        assert tuple(parts[: len(words)]) == words
        options = parser().parse_args(parts)
        assert " ".join(words) == options.command.name


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

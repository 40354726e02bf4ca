"""`rerank completion`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.errors import optional

SHELLS = ("bash", "zsh", "tcsh")


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("shell", choices=SHELLS, help="whose completion script is printed")


def _run(o: argparse.Namespace) -> None:
    with optional():
        import shtab

    print(shtab.complete(o.parser, shell=o.shell))


COMMAND = Command(
    "completion",
    "print a script that lets a shell complete commands and options",
    "completion bash",
    _arguments,
    _run,
)

"""The words of the command line to a command and its options. It runs nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rerank.commands.command import Command
from rerank.commands.printing import note
from rerank.commands.table import COMMANDS, FAMILIES, GROUPS, OLD, OLD_FLAGS, find
from rerank.errors import nearest
from rerank.storage.package import package_version

USAGE = "usage: rerank [-h] [--version] COMMAND ..."
HELP = ("-h", "--help")


def parse(arguments: Sequence[str] | None = None) -> tuple[Command, argparse.Namespace]:
    """The command, and its options; `--help`, `--version` and wrong words end the process.

    An old name of a command runs the present one, and a note says so.
    """
    words = _renamed(list(sys.argv[1:] if arguments is None else arguments))
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in COMMANDS:
            command = find(name)
            return command, command.parser(name).parse_args(words[count:])
    raise SystemExit(_answer(words))


def _renamed(words: list[str]) -> list[str]:
    for count in (2, 1):
        old = " ".join(words[:count])
        if old in OLD:
            note(f"`rerank {old}` is `rerank {OLD[old]}` now; the old name goes with 0.3")
            rest = [flag for word in words[count:] for flag in _new_flag(word)]
            return [*OLD[old].split(), *rest]
    return words


def _new_flag(word: str) -> list[str]:
    flag, equals, value = word.partition("=")
    return [f"{OLD_FLAGS.get(flag, flag)}{equals}{value}"]


def _answer(words: Sequence[str]) -> int:
    """Print the version or help, or which word is wrong; the exit code."""
    first, second = [*words, "", ""][:2]
    if first == "--version":
        print(f"rerank {package_version()}")
    elif first in HELP:
        print(overview())
    elif first in FAMILIES and second in HELP:
        print(_family(first))
    else:
        known, usage, wrong = [n for names in GROUPS.values() for n in names], USAGE, first
        if first in FAMILIES:
            known, wrong = list(FAMILIES[first][0]), second
            usage = f"usage: rerank {first} [-h] {'|'.join(known)} ..."
        expected = f"expected one of {', '.join(known)}"
        got = f", got {wrong!r}{nearest(wrong, known)}" if wrong else ""
        print(f"{usage}\nrerank: error: {expected}{got}", file=sys.stderr)
        return 2
    return 0


def overview() -> str:
    """What `rerank --help` prints."""
    lines = [USAGE, "", "Retrieval that knows when it is right."]
    for group, names in GROUPS.items():
        lines += ["", f"{group}:"]
        lines += [
            f"  {name:<13}{FAMILIES[name][1] if name in FAMILIES else find(name).text}"
            for name in names
        ]
    return "\n".join([*lines, "", "`rerank COMMAND --help` explains a command and its options."])


def _family(family: str) -> str:
    lines = [f"  {word:<15}{find(f'{family} {word}').text}" for word in FAMILIES[family][0]]
    return "\n".join([f"usage: rerank {family} [-h] COMMAND ...", "", *lines])

"""The parser of the command line, made from the table of commands. It runs nothing."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from rerank.commands.all_commands import COMMANDS
from rerank.commands.options import add_options
from rerank.errors import nearest
from rerank.storage.package import package_version


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest valid word."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and refuse unknown arguments here, where the options of the command are known."""
        options, unknown = super().parse_known_args(args, namespace)
        self._take_words_after_options(options, unknown)
        if unknown:
            hint = nearest(unknown[0], re.findall(r"--[\w-]+", self.format_help()))
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown

    def _take_words_after_options(self, options: Any, unknown: list[str]) -> None:
        """Give the first unknown words to positionals that may be left out, and were.

        Before Python 3.13, argparse takes such a positional for left out as soon as an option comes
        before it (https://github.com/python/cpython/issues/59317).
        """
        for action in self._get_positional_actions():
            if not unknown or unknown[0].startswith("-"):
                return
            if action.nargs == argparse.OPTIONAL and getattr(options, action.dest) is None:
                setattr(options, action.dest, self._get_values(action, [unknown.pop(0)]))

    def error(self, message: str) -> Any:
        """Print the message, and exit with code 2."""
        wrong = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
        hint = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        super().error(f"{message}{hint}")


def parser() -> Parser:
    """The parser of `rerank`; the parsed options include it and the `Command`."""
    made = Parser(prog="rerank", description="Retrieval that knows when it is right.")
    made.add_argument("--version", action="version", version=f"rerank {package_version()}")
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    dataset = commands.add_parser("dataset", help="build, check or import a labelled set")
    kinds = dataset.add_subparsers(required=True, metavar="build|check|import-trec")
    for command in COMMANDS:
        words = command.name.split()
        p = (commands if len(words) == 1 else kinds).add_parser(
            words[-1],
            help=command.text,
            description=command.text,
            epilog=f"example:\n  rerank {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.arguments(p)
        p.add_argument("--quiet", action="store_true", help="show no progress")
        if command.config:
            add_options(p, command.config)
        p.set_defaults(command=command, parser=made)
    return made

"""`rerank glossary`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command


def _arguments(p: argparse.ArgumentParser) -> None:
    """It takes no arguments."""


def _run(_: argparse.Namespace) -> None:
    from rerank.report.glossary import glossary_text

    print(glossary_text())


COMMAND = Command(
    "glossary",
    "explain the words of an answer, and which of them to act on",
    "glossary",
    _arguments,
    _run,
)

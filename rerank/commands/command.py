"""What a command is. A new one is a module here and a line in `rerank.commands.all_commands`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

REJECTED = 3  # exit code of a job that is done, except for rows that cannot be used


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name as typed, its help, one real example, its arguments, what it runs.

    `run` imports what is heavy, and returns an exit code, or False if the answer is no (code 1).
    Every field of `config` is an option. `resumes`: if interrupted, rerun the command to resume.
    """

    name: str
    text: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], bool | int | None]
    config: type | None = None
    resumes: bool = False

"""Every command, in the order of `rerank --help`, and the names that older ones had.

A new command is a function in a module of `rerank.commands`, and a word in this table: `data index`
is `index` in `data.py`, and `search`, of the group `use`, is `search` in `use.py`. Those of a room
are where `rerank.rooms` says, and are left out where the room is not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rerank.commands.command import Command
from rerank.commands.printing import note
from rerank.errors import nearest
from rerank.rooms import ROOMS, load, rooms
from rerank.storage.files import package_version

_GROUPS = {
    "use": ("quickstart", "search", "answer", "rescore", "serve"),
    "make": ("calibrate", "evaluate", "recalibrate", "model"),
    "data": ("data", "label"),
    "watch and train": ("watch", "train"),
}
_FAMILIES = {  # of commands with two words: what the second may be, and help
    "model": (
        ("init", "update", "export", "track", "promote"),
        "Make a model without labels; update, export, track or promote one",
    ),
    "data": (
        ("build", "check", "ingest", "index", "import-trec"),
        "Build, check, ingest, index or import data",
    ),
    "watch": (
        ("drift", "probe", "journal", "feedback"),
        "Detect drift, probe remote models, report on a journal, record feedback",
    ),
    "train": (
        ("cross-encoder", "bi-encoder", "prior"),
        "Train a cross-encoder, a bi-encoder, or the maps before the first label",
    ),
}
_ABSENT = {name for room in ROOMS.values() for name in room.commands} - {
    name for room in rooms().values() for name in room.commands
}
FAMILIES = {
    first: (kept, text)
    for first, (seconds, text) in _FAMILIES.items()
    if (kept := tuple(s for s in seconds if f"{first} {s}" not in _ABSENT))
}
GROUPS = {
    group: tuple(
        name
        for name in names
        if name not in _ABSENT and (name in FAMILIES or name not in _FAMILIES)
    )
    for group, names in _GROUPS.items()
}
_OURS = {name for names in _GROUPS.values() for name in names}
if _OTHERS := tuple(  # of other distributions
    name for room in rooms().values() for name in room.commands if name.split()[0] not in _OURS
):
    GROUPS["others"] = _OTHERS
COMMANDS = tuple(
    f"{first} {second}".strip()
    for names in GROUPS.values()
    for first in names
    for second in FAMILIES.get(first, (("",), ""))[0]
)
OLD = {  # names of 0.1, which run until 0.3
    "dataset build": "data build",
    "dataset check": "data check",
    "dataset import-trec": "data import-trec",
    "ingest": "data ingest",
    "index": "data index",
    "init": "model init",
    "update": "model update",
    "export": "model export",
    "track": "model track",
    "promote": "model promote",
    "finetune": "train cross-encoder",
    "finetune-encoder": "train bi-encoder",
    "pool": "train prior",
    "drift": "watch drift",
    "journal": "watch journal",
    "feedback": "watch feedback",
    "label-next": "label --next",
    "assess": "search --explain",
    "retrieve": "search --passages",
    "mcp": "serve --mcp",
}
OLD_FLAGS = {"--quantity": "--draw", "--full": "--explain"}  # of the old commands


def find(name: str) -> Command:
    """The command of a name; its module is imported now."""
    first, _, second = name.partition(" ")
    module = first if second else next(group for group, ns in GROUPS.items() if first in ns)
    own = f"rerank.commands.{module}:{(second or first).replace('-', '_')}"
    where = next((r.commands[name] for r in rooms().values() if name in r.commands), own)
    found: Command = load(where)
    return found


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

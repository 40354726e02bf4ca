"""Every command, in the order of `rerank --help`, and the names that older ones had.

A new command is a function in a module of `rerank.commands`, and a word in this table: `data index`
is `index` in `data.py`, and `search` is `search` in `search.py`. Those of a room are where
`rerank.rooms` says, and are left out where the room is not there.
"""

from __future__ import annotations

from rerank.commands.command import Command
from rerank.rooms import ROOMS, load, rooms

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
    module, _, second = name.partition(" ")
    function = (second or module).replace("-", "_")
    own = f"rerank.commands.{module}:{function}"
    where = next((r.commands[name] for r in rooms().values() if name in r.commands), own)
    found: Command = load(where)
    return found

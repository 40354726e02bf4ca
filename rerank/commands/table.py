"""Every command, in the order of `rerank --help`, and the names that older ones had.

A new command is a function in a module of `rerank.commands`, and a line in `COMMANDS`.
"""

from __future__ import annotations

from importlib import import_module

from rerank.commands.command import Command

COMMANDS = {  # where each is, within this package
    "quickstart": "quickstart.quickstart",
    "search": "search.search",
    "answer": "answer.answer",
    "rescore": "rescore.rescore",
    "serve": "serve.serve",
    "calibrate": "calibrate.calibrate",
    "evaluate": "evaluate.evaluate",
    "recalibrate": "recalibrate.recalibrate",
    "model init": "model.init",
    "model update": "model.update",
    "model export": "model.export",
    "model track": "model.track",
    "model promote": "model.promote",
    "data build": "data.build",
    "data check": "data.check",
    "data ingest": "data.ingest",
    "data index": "data.index",
    "data import-trec": "data.import_trec",
    "label": "label.label",
    "watch drift": "watch.drift",
    "watch journal": "watch.journal",
    "watch feedback": "watch.feedback",
    "train cross-encoder": "train.cross_encoder",
    "train bi-encoder": "train.bi_encoder",
    "train prior": "train.prior",
}
GROUPS = {
    "use": ("quickstart", "search", "answer", "rescore", "serve"),
    "make": ("calibrate", "evaluate", "recalibrate", "model"),
    "data": ("data", "label"),
    "watch and train": ("watch", "train"),
}
FAMILIES = {  # of commands with two words
    "model": "Make a model without labels; update, export, track or promote one",
    "data": "Build, check, ingest, index or import data",
    "watch": "Detect drift, report on a journal, record feedback",
    "train": "Train a cross-encoder, a bi-encoder, or the maps before the first label",
}
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
    """The command of a name in `COMMANDS`; its module is imported now."""
    module, _, function = COMMANDS[name].partition(".")
    found: Command = getattr(import_module(f"rerank.commands.{module}"), function)
    return found

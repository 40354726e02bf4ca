"""`rerank export`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_json, add_model, add_out
from rerank.commands.printing import print_json


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    add_out(p, "model")
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.export import export

    made = export(load_model(o), o.out, overwrite=o.overwrite)
    if o.json:
        print_json(model=made)
    else:
        print(f"{made}: the model, self-contained")


COMMAND = Command(
    "export",
    "copy a model with its networks inside, to be deployed without torch and weights",
    "export work/model --out work/deployed",
    _arguments,
    _run,
)

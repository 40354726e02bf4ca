"""`rerank export`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.inputs import load_model
from rerank.commands.options import add_model, add_out


def _arguments(p: argparse.ArgumentParser) -> None:
    add_model(p)
    add_out(p, "model")


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.export import export

    print(f"{export(load_model(o), o.out, overwrite=o.overwrite)}: the model, self-contained")


COMMAND = Command(
    "export",
    "copy a model with its networks inside, to be deployed without torch and weights",
    "export work/model --out work/deployed",
    _arguments,
    _run,
)

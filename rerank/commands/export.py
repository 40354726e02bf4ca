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
    from rerank.storage.files import sha256_file
    from rerank.storage.folder import MANIFEST

    made = export(load_model(o), o.out, overwrite=o.overwrite)
    sha256 = sha256_file(made / MANIFEST)
    if o.json:
        print_json(model=made, manifest_sha256=sha256)
    else:
        print(f"{made}: the model, self-contained; --manifest-sha256 {sha256} loads no other")


COMMAND = Command(
    "export",
    "copy a model with its networks inside, to be deployed without torch and weights",
    "export work/model --out work/deployed",
    _arguments,
    _run,
)

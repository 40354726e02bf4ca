"""`rerank serve`."""

from __future__ import annotations

import argparse

from rerank.commands.command import Command
from rerank.commands.options import add_manifest_sha256, add_work, from_options
from rerank.serving.settings import Settings


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "model",
        help="model folder (a copy of it in TMPDIR answers), or MLflow's name for it, such as "
        "models:/calibrated-rerank-pydata@champion",
    )
    add_manifest_sha256(p)
    add_work(p)


def _run(o: argparse.Namespace) -> None:
    chosen = from_options(Settings, o)
    from rerank.serving.model_place import place_of_model
    from rerank.serving.server import serve

    serve(place_of_model(o.model, o.work), chosen, manifest_sha256=o.manifest_sha256)


COMMAND = Command(
    "serve",
    "answer queries over HTTP, and take over new models as they come",
    "serve work/model --port 8000",
    _arguments,
    _run,
    config=Settings,
)

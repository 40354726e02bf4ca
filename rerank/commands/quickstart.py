"""`rerank quickstart`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.ingest import add_folder, print_ingested
from rerank.commands.options import add_options, add_work, from_options
from rerank.commands.update import print_updated
from rerank.config import IngestConfig
from rerank.serving.settings import Settings

BODY, JSON = '{"query": "a question of yours"}', "-H 'Content-Type: application/json'"


def _arguments(p: argparse.ArgumentParser) -> None:
    add_folder(p)
    p.add_argument(
        "--out",
        type=Path,
        help="folder of the corpus and the model (default: one in --work, named as FOLDER)",
    )
    p.add_argument("--no-serve", action="store_true", help="stop when the model is made")
    add_options(p, IngestConfig)
    add_options(p, Settings, "port")
    add_work(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.ingest.ingest import ingest
    from rerank.jobs.init import SAID, init
    from rerank.jobs.update import update

    out = o.out or o.work / (o.folder.resolve().name or "documents")
    corpus, model = out / "corpus", out / "model"
    settings = from_options(Settings, o)
    print_ingested(ingest(o.folder, corpus, from_options(IngestConfig, o)), corpus)
    if (model / "manifest.json").exists():
        print_updated(update(model, corpus), model)
    else:
        init(corpus, model, work=o.work)
        print(f"{model}: a model to search with. {SAID}")
    _print_next(model, corpus, settings.port)
    if not o.no_serve:
        from rerank.serving.model_place import place_of_model
        from rerank.serving.server import serve

        serve(place_of_model(str(model), o.work), settings)


def _print_next(model: Path, corpus: Path, port: int) -> None:
    """Print what to do with the model."""
    named, labels = shlex.quote(str(model)), shlex.quote(str(corpus))
    calibrated = shlex.quote(str(model.parent / "calibrated"))
    print("Next:")
    print(f"  ask:        open http://127.0.0.1:{port}/ in a browser while it is served")
    print(f'  or:         rerank search {named} "a question of yours"')
    print(f"  over HTTP:  curl http://127.0.0.1:{port}/v1/search -d '{BODY}' {JSON}")
    print(f"  label:      rerank label {named} --out {labels}")
    print(f"  calibrate:  rerank calibrate {labels} --out {calibrated}")
    print("When documents change, run this command again: it reads only what changed.")


COMMAND = Command(
    "quickstart",
    "folder of documents to a model that answers over HTTP, in one command",
    "quickstart docs",
    _arguments,
    _run,
    resumes=True,
)

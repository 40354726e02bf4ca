"""`rerank quickstart`."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from rerank.commands.command import Command
from rerank.commands.ingest import add_folder, print_ingested
from rerank.commands.options import add_json, add_options, add_work, from_options, typed_options
from rerank.commands.printing import print_json
from rerank.commands.update import print_updated
from rerank.config import IngestConfig
from rerank.errors import InputError, command_line
from rerank.serving.settings import Settings
from rerank.storage.folder import MANIFEST
from rerank.workspace import sqlite_url

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
    add_options(p, Settings, "port", "journal")
    add_work(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.ingest.ingest import ingest
    from rerank.jobs.init import NOT_CALIBRATED, init
    from rerank.jobs.update import update

    out = o.out or o.work / (o.folder.resolve().name or "documents")
    _refuse_model_folder(out)
    if o.no_serve and (typed := typed_options(Settings, o)):
        raise InputError(f"{', '.join(typed)}: not with --no-serve, which starts no server")
    corpus, model = out / "corpus", out / "model"
    settings = from_options(Settings, o)
    if settings.journal and o.folder.is_dir():  # `ingest` refuses another one
        _check_journal(settings, out)  # fail before reading and encoding the documents
    read = ingest(o.folder, corpus, from_options(IngestConfig, o))
    if not o.json:
        print_ingested(read, corpus)
    changed = update(model, corpus) if (model / MANIFEST).exists() else None
    if changed is None:
        init(corpus, model, work=o.work)
    if o.json:
        updated = None if changed is None else asdict(changed)
        print_json(corpus=corpus, ingested=asdict(read), model=model, updated=updated)
    else:
        if changed is None:
            print(f"{model}: a model to search with. {NOT_CALIBRATED}")
        else:
            print_updated(changed, model)
        _print_next(model, corpus, settings)
    if not o.no_serve:
        from rerank.serving.model_place import place_of_model
        from rerank.serving.server import serve

        sys.stdout.flush()  # before the server takes over, for whoever reads a pipe
        serve(place_of_model(str(model), o.work), settings)


def _refuse_model_folder(out: Path) -> None:
    if (out / MANIFEST).exists():
        raise InputError(
            f"{out} is the folder of a model or an index; expected one for a corpus and a model, "
            "which may be new. Give another --out"
        )


def _check_journal(settings: Settings, out: Path) -> None:
    """Refuse a journal that cannot be written; it may lie in `out`, which is made for it.

    Raises:
        InputError, JournalError, MissingExtraError: as `check_journal`.
    """
    from rerank.serving.server_journal import check_journal

    out.mkdir(parents=True, exist_ok=True)
    check_journal(settings)


def _print_next(model: Path, corpus: Path, settings: Settings) -> None:
    """Print what to do with the model."""
    address = f"http://127.0.0.1:{settings.port}" if settings.port else "http://ADDRESS"
    print("Next:")
    print(f"  ask:        open {address}/ in a browser while it is served")
    print(f"  or:         {command_line('search', model, 'a question of yours')}")
    print(f"  over HTTP:  curl {address}/v1/search -d '{BODY}' {JSON}")
    if not settings.journal:
        kept = shlex.quote(sqlite_url(model.parent / "journal.db"))
        print(f"  watch:      --journal {kept} keeps questions and judgements for the Watch page")
    calibrated = model.parent / "calibrated"
    print(f"  label:      {command_line('label', model, '--out', corpus)}")
    print(f"  calibrate:  {command_line('calibrate', corpus, '--out', calibrated)}")
    print("When documents change, run this command again: it reads only what changed.")


COMMAND = Command(
    "quickstart",
    "make a model of a folder of documents, and serve it over HTTP, in one command",
    "quickstart docs",
    _arguments,
    _run,
    resumes=True,
)

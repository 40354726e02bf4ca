"""`rerank data ingest` and `rerank quickstart`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rerank.commands.command import Only, Typed, command
from rerank.commands.model import MODELS, print_updated
from rerank.commands.options import WORK, Documents, Json, Work
from rerank.commands.printing import note, print_json
from rerank.config import Config
from rerank.errors import InputError, command_line
from rerank.ingest.passages import IngestConfig
from rerank.serving.settings import Settings
from rerank.storage.folder import MANIFEST, sqlite_url

if TYPE_CHECKING:
    from rerank.ingest.ingest import Ingested

BODY, JSON = '{"query": "a question of yours"}', "-H 'Content-Type: application/json'"
SHOWN = 10  # files that are named, of each sort


@command("docs --out work/corpus", resumes=True)
def ingest(folder: Documents, config: IngestConfig, *, out: Path, json: Json = False) -> None:
    """Make a corpus of a folder of documents; run again, it reads only what changed.

    Args:
        out: corpus folder to write, or to update
    """
    from rerank.ingest.ingest import ingest

    found = ingest(folder, out, config)
    if json:
        print_json(corpus=out, **asdict(found))
        return
    print_ingested(found, out)
    print(f"Next: {command_line('model', 'init', out, '--out', 'work/model')}")
    update = command_line("model", "update", "work/model", out)
    print(f"or, if there is a model of this corpus: {update}")


def print_ingested(found: Ingested, out: Path) -> None:
    """Print what a run did; what it skipped goes to stderr."""
    from rerank.ingest.ingest import DUPLICATES, SKIPPED

    print(
        f"{out}: passages: {found.passages}; files: {found.files} ({found.read} read now, "
        f"{found.gone} gone, the others unchanged)"
    )
    if found.exact or found.near:
        print(
            f"duplicate passages left out: {found.exact}; nearly the same: {found.near} pairs; see "
            f"{out / DUPLICATES}"
        )
    if found.other:
        kinds = ", ".join(f"{n} {kind or 'no ending'}" for kind, n in found.other.items())
        note(f"files of other kinds, not read: {kinds}")
    _note_files("files skipped", found.skipped, out / SKIPPED)
    _note_files("files read without a part of them", found.left_out, out / SKIPPED)


def _note_files(what: str, files: Mapping[str, str], listed: Path) -> None:
    if files:
        note(f"{what}: {len(files)}, all in {listed}:")
    for name, why in list(files.items())[:SHOWN]:
        note(f"  {name}: {why}")


@command("docs", resumes=True, networks=True)
def quickstart(
    folder: Documents,
    config: IngestConfig,
    settings: Annotated[Settings, Only(("port", "journal"))],
    models: Annotated[Config, Only(MODELS)],
    typed: Typed,
    *,
    out: Path | None = None,
    no_serve: bool = False,
    work: Work = WORK,
    json: Json = False,
) -> None:
    """Make a model of a folder of documents, and serve it over HTTP, in one command.

    Args:
        out: folder of the corpus and the model (default: one in --work, named as FOLDER)
        no_serve: stop when the model is made
    """
    from rerank.ingest.ingest import ingest
    from rerank.jobs.update import NOT_CALIBRATED, init, update

    out = out or work / (folder.resolve().name or "documents")
    if (out / MANIFEST).exists():
        raise InputError(
            f"{out} is the folder of a model or an index; expected one for a corpus and a model, "
            "which may be new. Give another --out"
        )
    if no_serve:
        typed.refuse("not with --no-serve, which starts no server", "port", "journal")
    corpus, model = out / "corpus", out / "model"
    if settings.journal and folder.is_dir():  # `ingest` refuses another one
        from rerank.serving.server import check_settings

        out.mkdir(parents=True, exist_ok=True)  # the journal may lie in it
        check_settings(settings)  # fail before reading and encoding the documents
    read = ingest(folder, corpus, config)
    if not json:
        print_ingested(read, corpus)
    made = (model / MANIFEST).exists()
    if made:
        typed.refuse(f"{model} is there; remove it to make it with other options", *MODELS)
    changed = update(model, corpus) if made else None
    if changed is None:
        init(corpus, model, models, work=work)
    if json:
        updated = None if changed is None else asdict(changed)
        print_json(corpus=corpus, ingested=asdict(read), model=model, updated=updated)
    else:
        if changed is None:
            print(f"{model}: a model to search with. {NOT_CALIBRATED}")
        else:
            print_updated(changed, model)
        address = f"http://127.0.0.1:{settings.port}" if settings.port else "http://ADDRESS"
        print("Next:")
        print(f"  ask:        open {address}/ in a browser while it is served")
        print(f"  or:         {command_line('search', model, 'a question of yours')}")
        print(f"  over HTTP:  curl {address}/v1/search -d '{BODY}' {JSON}")
        if not settings.journal:
            kept = shlex.quote(sqlite_url(model.parent / "journal.db"))
            print(
                f"  watch:      --journal {kept} keeps questions and judgements for the Watch page"
            )
        calibrated = model.parent / "calibrated"
        print(f"  label:      {command_line('label', model, '--out', corpus)}")
        print(f"  calibrate:  {command_line('calibrate', corpus, '--out', calibrated)}")
        print("When documents change, run this command again: it reads only what changed.")
    if not no_serve:
        from rerank.serving.model_source import place_of_model
        from rerank.serving.server import serve

        sys.stdout.flush()  # before the server takes over, for whoever reads a pipe
        serve(place_of_model(str(model), work), settings)

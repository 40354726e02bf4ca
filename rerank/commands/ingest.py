"""`rerank ingest`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.command import Command
from rerank.commands.options import add_json, from_options
from rerank.commands.printing import note, print_json
from rerank.config import IngestConfig
from rerank.errors import command_line

if TYPE_CHECKING:
    from rerank.ingest.ingest import Ingested

SHOWN = 10  # files that are named, of each sort


def _arguments(p: argparse.ArgumentParser) -> None:
    add_folder(p)
    p.add_argument("--out", type=Path, required=True, help="corpus folder to write, or to update")
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.ingest.ingest import ingest

    found = ingest(o.folder, o.out, from_options(IngestConfig, o))
    if o.json:
        print_json(corpus=o.out, **asdict(found))
        return
    print_ingested(found, o.out)
    print(f"Next: {command_line('init', o.out, '--out', 'work/model')}")
    update = command_line("update", "work/model", o.out)
    print(f"or, if there is a model of this corpus: {update}")


def add_folder(p: argparse.ArgumentParser) -> None:
    """Add the argument for the folder of documents."""
    p.add_argument(
        "folder",
        type=Path,
        help="folder of documents: Markdown, HTML, PDF, DOCX, reStructuredText, text",
    )


def print_ingested(found: Ingested, out: Path) -> None:
    """Print what a run did; what it skipped goes to stderr."""
    from rerank.ingest.ingest import DUPLICATES, SKIPPED

    print(
        f"{out}: {found.passages} passages of {found.files} files; {found.read} files read, "
        f"{found.gone} gone, the others unchanged"
    )
    if found.exact or found.near:
        print(
            f"duplicate passages left out: {found.exact}; nearly the same: {found.near} pairs; see "
            f"{out / DUPLICATES}"
        )
    if found.other:
        kinds = ", ".join(f"{n} {kind or 'no ending'}" for kind, n in found.other.items())
        note(f"files of other kinds, not read: {kinds}")
    if found.skipped:
        _note_files("files skipped", found.skipped, out / SKIPPED)
    if found.left_out:
        _note_files("files read without a part of them", found.left_out, out / SKIPPED)


def _note_files(what: str, files: Mapping[str, str], listed: Path) -> None:
    note(f"{what}: {len(files)}, all in {listed}:")
    for name, why in list(files.items())[:SHOWN]:
        note(f"  {name}: {why}")


COMMAND = Command(
    "ingest",
    "make a corpus of a folder of documents; run again, it reads only what changed",
    "ingest docs --out work/corpus",
    _arguments,
    _run,
    config=IngestConfig,
    resumes=True,
)

"""`rerank update`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.commands.command import Command
from rerank.commands.options import add_json, add_on_bad_lines
from rerank.commands.printing import note, print_json

if TYPE_CHECKING:
    from rerank.jobs.update import Updated


def _arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("target", type=Path, help="index or model folder, replaced in place")
    p.add_argument("corpus", type=Path, help="JSONL file, or a folder with corpus.jsonl")
    add_on_bad_lines(p)
    add_json(p)


def _run(o: argparse.Namespace) -> None:
    from rerank.jobs.update import update

    found = update(o.target, o.corpus, on_bad_lines=o.on_bad_lines)
    if o.json:
        print_json(updated=o.target, **asdict(found))
    else:
        print_updated(found, o.target)


def print_updated(found: Updated, target: Path) -> None:
    """Print what an update changed, and whether guarantees were lost."""
    from rerank.jobs.update import CHANGED

    if not found:
        print(f"{target}: {found.passages} passages, the same as before; nothing is written")
        return
    print(
        f"{target}: {found.passages} passages; {found.added} added, {found.removed} removed, "
        f"{found.changed} changed"
    )
    if found.uncertified:
        note(f"nothing is certified. {CHANGED}")


COMMAND = Command(
    "update",
    "let an index or a model search a changed corpus, without building it anew",
    "update work/model work/corpus",
    _arguments,
    _run,
)

"""`rerank journal`."""

from __future__ import annotations

import argparse
import json

from rerank.commands.command import Command
from rerank.commands.options import add_journal, add_json, positive
from rerank.commands.printing import printable
from rerank.errors import InputError


def _arguments(p: argparse.ArgumentParser) -> None:
    add_journal(p)
    p.add_argument("--days", type=positive, default=30, help="days to look back (default: 30)")
    p.add_argument(
        "--documents", type=positive, default=10, help="most documents to list (default: 10)"
    )
    p.add_argument(
        "--target",
        type=float,
        default=0.7,
        help="share of accepted answers that should be right (default: 0.7)",
    )
    add_json(p)


def _run(o: argparse.Namespace) -> bool:
    from rerank.journal.report import report
    from rerank.journal.store import JournalStore

    if not 0 < o.target < 1:
        raise InputError(f"--target should be a number above 0 and below 1, got {o.target:g}")
    with JournalStore(o.journal) as store:
        found = report(store, days=o.days, documents=o.documents, target=o.target)
    print(json.dumps(found.to_dict()) if o.json else printable(found.text()))
    return not found.alarmed


COMMAND = Command(
    "journal",
    "report on the journal: confidence, labels, weak documents; exit code 1: alarm",
    "journal sqlite:///journal.db --days 30",
    _arguments,
    _run,
)

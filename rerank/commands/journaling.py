"""`--journal` of the commands that answer: they write the same entries as a server.

A failing journal gives one warning on stderr, and never a failed answer.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rerank.commands.options import add_options, from_options
from rerank.commands.printing import note
from rerank.errors import JournalError, optional
from rerank.serving.settings import Settings

if TYPE_CHECKING:
    from rerank.journal.journal import Journal
    from rerank.rag.answer.model_answers import Record


def add_kept_journal(p: argparse.ArgumentParser) -> None:
    """Add `--journal` and `--journal-without-text`, as for the server."""
    add_options(p, Settings, "journal", "journal_without_text")


@contextmanager
def journal_kept(o: argparse.Namespace) -> Iterator[Record]:
    """A function that records answers in the journal of the options; at the end all are written.

    No entry is removed: only the server enforces retention.

    Raises:
        InputError: the URL is not that of a journal, or its schema is of a newer version.
        MissingExtraError: the extra is not installed.
    """
    from rerank.rag.answer.model_answers import unrecorded

    settings = from_options(Settings, o)
    journal = _opened(settings) if settings.journal else None
    if journal is None:
        yield unrecorded
        return
    try:
        yield journal.record
    finally:
        sys.stdout.flush()  # the answers first
        message = journal.close()
        if message:
            note(message)


def _opened(settings: Settings) -> Journal | None:
    logging.getLogger("rerank.journal").addHandler(logging.NullHandler())  # told once, at the end
    with optional():
        from rerank.journal.journal import Journal
    try:
        return Journal(settings.journal, without_text=settings.journal_without_text)
    except JournalError as error:
        note(f"not written to the journal: {error}")
        return None

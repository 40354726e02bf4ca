"""`rerank watch journal` and `watch feedback`; and the recording of what other commands answer."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from rerank.commands.command import command
from rerank.commands.options import JournalUrl, Json
from rerank.commands.printing import note, printable, tell
from rerank.config import Option
from rerank.errors import InputError, JournalError, optional
from rerank.protocols import Record, unrecorded
from rerank.serving.settings import Settings


@contextmanager
def recorder(settings: Settings) -> Iterator[Record]:
    """The function of `rerank.commands.options.journal_kept`."""
    logging.getLogger("rerank.journal").addHandler(logging.NullHandler())  # told once, at the end
    with optional():
        from rerank.journal.journal import Journal
    try:
        journal = Journal(settings.journal, without_text=settings.journal_without_text)
    except JournalError as error:
        note(f"not written to the journal: {error}")
        yield unrecorded
        return
    try:
        yield journal.record
    finally:
        sys.stdout.flush()  # the answers first
        message = journal.close()
        if message:
            note(message)


@command("sqlite:///journal.db --days 30")
def journal(
    journal: JournalUrl,
    *,
    days: Annotated[int, Option(ge=1)] = 30,
    documents: Annotated[int, Option(ge=1)] = 10,
    target: Annotated[float | None, Option(gt=0, lt=1)] = None,
    json: Json = False,
) -> bool:
    """Report on a journal: confidence, labels, weak documents; exit code 1: alarm.

    Args:
        days: days to look back
        documents: most documents to list
        target: share of accepted answers that should be right (default: the threshold from which
            the model accepts)
    """
    from rerank.journal.reading import report
    from rerank.journal.store import JournalStore

    with JournalStore(journal) as store:
        found = report(store, days=days, documents=documents, target=target)
    tell(json, printable(found.text()), **found.to_dict())
    return not found.alarmed


@command("sqlite:///journal.db 0f8fad5bd9cb469fa16570867728950e right")
def feedback(
    journal: JournalUrl,
    answer: Annotated[str, Option(metavar="ANSWER_ID")],
    word: Annotated[str, Option(choices=("right", "wrong"))],
    *,
    comment: str = "",
    json: Json = False,
) -> None:
    """Record in a journal whether an answer was right.

    Args:
        answer: `id` of the answer
        word: whether it was right; the latest judgement counts
        comment: why, in words
    """
    from rerank.journal.store import JournalStore

    with JournalStore(journal) as store:
        if not store.judge(answer, word == "right", comment):
            raise InputError(
                f"the journal {store.name} has no answer {answer!r:.100}; expected the `id` that "
                "came with an answer"
            )
    tell(json, f"recorded: {answer} was {word}", id=answer, right=word == "right")

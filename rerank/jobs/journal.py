"""What jobs take from a journal: labels to recalibrate by, and queries to look for drift in."""

from __future__ import annotations

import json

from sqlalchemy import select

from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import Feedback, feedback_from
from rerank.data.records import read_query
from rerank.errors import InputError
from rerank.journal.labels import newest_labels
from rerank.journal.schema import JOURNAL
from rerank.journal.store import JournalStore
from rerank.types import Query

NO_TEXT = "have no text in the journal (it was left out), and cannot be asked again"


def journal_labels(
    model: CalibratedReranker, journal: str, *, newest: int | None = None
) -> tuple[list[Feedback], tuple[str, ...]]:
    """The newest labels of a journal, and notes on those that are left out.

    A label is about the passage that came first then. Where the model puts another one first now,
    the label says nothing of it and is left out.

    Raises:
        InputError: no journal, or no label that can be used.
        JournalError: the database cannot be used.
    """
    with JournalStore(journal) as store:
        rows = newest_labels(store, newest)
        name = store.name
    whole = [row for row in rows if row["asked"] is not None]
    labels = [feedback_from({**json.loads(r["asked"]), "right": r["right"]}) for r in whole]
    found = model.assess([f.query for f in labels], label="asking again")
    tops = [answer.top.doc_id if answer.top else None for answer in found]
    kept = [f for f, row, top in zip(labels, whole, tops, strict=True) if top == row["top_doc_id"]]
    notes = []
    if len(whole) < len(rows):
        notes.append(f"left out: {len(rows) - len(whole)} labels {NO_TEXT}.")
    if len(kept) < len(whole):
        notes.append(
            f"left out: {len(whole) - len(kept)} labels of answers to which the model now gives "
            "another top passage."
        )
    if not kept:
        raise InputError(
            " ".join([f"the journal {name} has no label that can be used,", *notes]).rstrip(",")
        )
    return kept, tuple(notes)


def journal_queries(journal: str, *, newest: int) -> list[Query]:
    """The newest searches of a journal, oldest first.

    Raises:
        InputError: no journal, or no search with its text.
        JournalError: the database cannot be used.
    """
    chosen = (
        select(JOURNAL.c.entry_id, JOURNAL.c.asked)
        .where(JOURNAL.c.mode == "search", JOURNAL.c.asked.is_not(None))
        .order_by(JOURNAL.c.entry_id.desc())
        .limit(newest)
    )
    with JournalStore(journal) as store:
        rows, name = store.rows(chosen)[::-1], store.name
    if not rows:
        raise InputError(
            f"the journal {name} has no search with its text; expected some to compare"
        )
    return [read_query({**json.loads(r["asked"]), "_id": r["entry_id"]}) for r in rows]

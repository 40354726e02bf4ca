"""What jobs read from a journal: labels for a recalibration, and queries to check for drift."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import MOVED, Feedback, feedback_from, still_first
from rerank.data.records import read_query
from rerank.errors import InputError
from rerank.journal.labels import (
    label_of,
    newest_answers,
    newest_labels,
    newest_searches,
    one_per_question,
)
from rerank.journal.store import JournalStore, Row
from rerank.types import Query

OTHER_KIND = "they are of answers of another kind of model"
NO_TEXT = "the journal holds no text of their questions"


def journal_labels(
    model: CalibratedReranker, journal: str, *, newest: int | None = None
) -> tuple[list[Feedback], tuple[str, ...]]:
    """The newest label of each question in a journal, and notes on labels that are left out.

    A label is about the passage that was ranked first then. If the model now ranks another one
    first, the label does not apply and is left out; an older label of the present first passage
    applies. `newest` keeps only so many of the labels that apply, the newest ones.

    Raises:
        InputError: no journal, or no label that can be used.
        JournalError: the database cannot be used.
    """
    with JournalStore(journal) as store:
        rows = newest_labels(store)
        name = store.name
    left_out: Counter[str] = Counter()
    labelled: list[tuple[Row, Feedback]] = []
    for row in rows:
        try:
            labelled.append((row, _label(row, model)))
        except InputError as error:
            left_out[str(error)] += 1
    again = partial(model.assess, label="ranking labelled queries")
    present = still_first([label for _, label in labelled], again)
    of_row = {
        row["entry_id"]: label
        for (row, label), applies in zip(labelled, present, strict=True)
        if applies
    }
    chosen = one_per_question([row for row, _ in labelled if row["entry_id"] in of_row], newest)
    labels = [replace(of_row[row["entry_id"]], top=None) for row in chosen]  # they are checked now
    if len(of_row) < len(labelled):
        left_out[MOVED] = len(labelled) - len(of_row)
    notes = tuple(f"left out: {n} labels, because {why}." for why, n in left_out.items())
    if not labels:
        raise InputError(
            " ".join([f"the journal {name} has no label of searches that can be used,", *notes])
            + " Labels of generated answers are for --answers."
        )
    return labels, notes


def _label(row: Row, model: CalibratedReranker) -> Feedback:
    """The label of a row.

    Raises:
        InputError: it cannot be used; the message says why.
    """
    if row["asked"] is None:
        raise InputError(NO_TEXT)
    label = feedback_from(label_of(row))
    if not _is_for(model, label.query):
        raise InputError(OTHER_KIND)
    return label


def _is_for(model: CalibratedReranker, query: Query) -> bool:
    """Whether the model answers such queries: it has their mode, and knows their stages."""
    try:
        model.check(query)
    except InputError:
        return False
    return True


def journal_queries(model: CalibratedReranker, journal: str, *, newest: int) -> list[Query]:
    """The newest searches of a journal, oldest first, without those that a file could not hold.

    Those of a model of another kind are left out too.

    Raises:
        InputError: no journal, or no search with its text.
        JournalError: the database cannot be used.
    """
    with JournalStore(journal) as store:
        rows, name = newest_searches(store, newest), store.name
    queries = []
    for row in rows:
        with suppress(InputError):  # such as a longer query, which a server may be set to take
            queries.append(read_query({**json.loads(row["asked"]), "_id": row["entry_id"]}))
    queries = [query for query in queries if _is_for(model, query)]
    if not queries:
        raise InputError(
            f"the journal {name} has no search with its text; expected some to compare"
        )
    return queries


def journal_answers(journal: str, versions: Sequence[str], newest: int | None) -> list[Row]:
    """The newest labelled answer to each question, by models of these versions.

    Raises:
        InputError: no journal.
        JournalError: the database cannot be used.
    """
    with JournalStore(journal) as store:
        return newest_answers(store, versions, newest)

"""The journal in its database: adds entries, records feedback, enforces retention, reads rows.

An entry is one assessed question: plain values, with its texts or their hashes.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from rerank.advice.places import place_of
from rerank.data.checks import as_text, query_hash
from rerank.data.records import query_row
from rerank.errors import InputError
from rerank.journal.database import (
    JOURNAL,
    address,
    bring_up_to_date,
    one_sentence_errors,
    open_engine,
    without_password,
    writing,
)
from rerank.protocols import GivenAnswer
from rerank.types import Assessment

KEPT = 10  # passages in an entry, best first
ACCEPTED, ADVISORY = "accepted", "advisory only"  # decisions on a retrieval
ANSWERED, UNSURE, REFUSED = "answered", "answered with low confidence", "refused"  # on an answer


Row = Mapping[str, Any]
FIRST_STAGE = " first stage"  # after the model whose reranker failed: none of its numbers
Entry = dict[str, Any]  # a row to be written: the columns of `JOURNAL` without the feedback


def entry_of(
    assessment: Assessment,
    *,
    answer_id: str,
    model: str,
    latency: float,
    answer: GivenAnswer | None = None,
    without_text: bool = False,
) -> Entry:
    """The entry of an assessment made just now, and of the answer based on it."""
    query, best = assessment.ranking.query, assessment.first(KEPT)
    now = time.time()
    top = best[0] if best else None
    fitted = bool(top) and not assessment.first_stage
    text = None if answer is None else _storable_text(answer.answer)
    row = query_row(query)  # in the format of a labels file
    kept = {name: row[name] for name in ("metadata", "passages", "filter") if name in row}
    entry: Entry = {
        "entry_id": f"{int(now * 1e9):016x}{secrets.token_hex(4)}",
        "answer_id": answer_id,
        "time": now,
        "mode": assessment.mode,
        "question": _storable_text(query.text),
        "question_hash": query_hash(query.text),
        "asked": None if without_text else json.dumps({"query": query.text} | kept, default=str),
        "passages": json.dumps([passage.to_dict() for passage in best]),
        "top_doc_id": _storable_text(top.doc_id) if top else None,
        "top_document": _storable_text(place_of(top).document) if top else None,
        "confidence": assessment.confidence,
        "sufficiency": assessment.sufficiency,
        "level": assessment.level,
        "verdict": assessment.verdict,
        "accepted": assessment.accepted,
        "threshold": assessment.thresholds.advisory,
        "decision": _decision(assessment, answer),
        "answer": text,
        "answer_hash": None if text is None else query_hash(text),
        "attribution": None if answer is None else answer.attribution_coverage,
        "model": f"{model}{FIRST_STAGE if assessment.first_stage else ''}",
        "latency": latency,
        "features": assessment.features.astype("<f8").tobytes() if fitted else None,
    }
    if without_text:
        entry |= dict.fromkeys(("question", "top_document", "answer"))
    return entry


def _decision(assessment: Assessment, answer: GivenAnswer | None) -> str:
    if answer is None:
        return ACCEPTED if assessment.accepted else ADVISORY
    if answer.refused:
        return REFUSED
    return UNSURE if answer.low_confidence else ANSWERED


def _storable_text(text: str) -> str:
    """The text in a form that every database accepts: without NUL and without lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


PATIENCE = 5.0  # seconds to wait for locks held by others
PRUNED = 1000  # entries removed in one transaction: few, so that writers wait only briefly
LONGEST_COMMENT = 10_000  # characters
NO_PASSAGES = "[]"  # passages of an entry whose texts are past retention
DAY = 86_400.0
INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
HASHED = "#"  # begins the hash of an id that came with a question, in an entry without texts


class JournalStore(AbstractContextManager["JournalStore"]):
    """A journal by its URL: `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`.

    Many threads and processes may use one journal. `patience` (default `PATIENCE`) is how many
    seconds to wait for locks held by others.
    """

    def __init__(self, url: str, *, create: bool = False, patience: float | None = None) -> None:
        place = address(url)
        self.name = without_password(place)
        self._engine = open_engine(place, patience=PATIENCE if patience is None else patience)
        self._create = create
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def check(self) -> None:
        """Check that the journal exists, and bring its schema up to date."""
        bring_up_to_date(self._engine, create=self._create)

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with one_sentence_errors(self._engine), writing(self._engine) as connection:
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with one_sentence_errors(self._engine), self._engine.connect() as connection:
            yield connection

    def add(self, entries: Sequence[Entry]) -> None:
        """Write entries in one transaction: all or none. Those already there are unchanged.

        Raises:
            RefusedValueError: the database works, but rejects one of the values.
        """
        insert = INSERT[self._engine.dialect.name](JOURNAL).on_conflict_do_nothing()
        with self._write() as connection:
            connection.execute(insert, entries)

    def judge(self, answer_id: str, right: bool, comment: str = "") -> bool:
        """Record whether an answer was right; False if the journal has no such answer.

        The newest feedback wins, but for the monitors, which read the first; repeating it
        changes nothing. The opposite judgement removes the comment of the one before. If several
        answers have the id, it is for the newest of them. No comment is kept for an entry whose
        texts are left out.
        """
        if not isinstance(right, bool | np.bool_):  # None would delete the judgement
            raise InputError(f"`right` should be True or False, got {right!r:.100}")
        as_text("comment", comment, max_length=LONGEST_COMMENT, empty=True)
        comment = comment.replace("\0", " ")
        c = JOURNAL.c
        columns = (c.entry_id, c.top_doc_id, c.answer_hash)
        newest = sa.select(*columns).where(c.answer_id == answer_id).order_by(c.entry_id.desc())
        same = sa.and_(c.right.is_not(None), c.right == bool(right))
        now = time.time()
        values: dict[Any, Any] = {
            c.right: bool(right),
            c.judged: sa.case((same, c.judged), else_=now),
            c.first_right: sa.func.coalesce(c.first_right, bool(right)),
            c.first_judged: sa.func.coalesce(c.first_judged, now),
            c.comment: sa.case((same, c.comment), else_=sa.null()),
        }
        if comment:
            values[c.comment] = sa.case((c.question.is_not(None), comment), else_=sa.null())
        with self._write() as connection:
            entry = connection.execute(newest.limit(1)).first()
            if entry is None:
                return False
            if right and entry.top_doc_id is None and entry.answer_hash is None:
                raise InputError(
                    f"the answer {answer_id!a:.80} cannot be right: no passage was found, and no "
                    "text was written; it can be wrong, or stay without feedback"
                )
            connection.execute(
                sa.update(JOURNAL).where(c.entry_id == entry.entry_id).values(values)
            )
        return True

    def prune(self, *, days: float = 0, rows: int = 0) -> int:
        """Remove entries older than `days`, then the oldest beyond `rows`; 0 is no limit.

        Judged entries lose their texts but keep their numbers: a sequential test, which may be
        looked at after every label, is valid only if no label is removed.

        Returns:
            The number of entries removed.
        """
        c, removed = JOURNAL.c, 0
        if days:
            removed += self._remove_texts(c.time < time.time() - days * DAY)
        if rows:
            last = sa.select(c.entry_id).order_by(c.entry_id.desc()).offset(rows).limit(1)
            with self._read() as connection:
                beyond = connection.execute(last).scalar()
            if beyond is not None:
                removed += self._remove_texts(c.entry_id <= beyond)
        return removed

    def _remove_texts(self, old: sa.ColumnElement[bool]) -> int:
        """Remove the texts of judged entries, and the other entries; the number of the latter."""
        c = JOURNAL.c
        texts: dict[Any, Any] = dict.fromkeys((c.question, c.asked, c.answer, c.comment))
        own = c.mode != "search"  # their documents came with the question, and are texts too
        own_id = sa.and_(own, c.top_doc_id.not_like(f"{HASHED}%"))
        texts[c.top_document] = sa.case((own, sa.null()), else_=c.top_document)
        has_text = sa.or_(
            c.asked.is_not(None),
            c.passages != NO_PASSAGES,
            sa.and_(own, c.top_document.is_not(None)),
            own_id,
        )
        judged = sa.and_(old, c.right.is_not(None), has_text)
        named = sa.select(c.entry_id, c.top_doc_id).where(judged, own_id)
        with self._write() as connection:
            hashed = [
                {"entry": entry_id, "id": HASHED + query_hash(doc_id)}
                for entry_id, doc_id in connection.execute(named)
            ]
            if hashed:  # labels are told apart by it
                of_entry = sa.update(JOURNAL).where(c.entry_id == sa.bindparam("entry"))
                connection.execute(of_entry.values(top_doc_id=sa.bindparam("id")), hashed)
            connection.execute(
                sa.update(JOURNAL).where(judged).values({**texts, c.passages: NO_PASSAGES})
            )
        unjudged = sa.select(c.entry_id).where(old, c.right.is_(None)).limit(PRUNED)
        some, removed = sa.delete(JOURNAL).where(c.entry_id.in_(unjudged)), 0
        while True:
            with self._write() as connection:
                count = connection.execute(some).rowcount
            removed += count
            if count < PRUNED:
                return removed

    def rows(self, query: sa.Select[Any]) -> list[Row]:
        """The rows that a query of `rerank.journal.database.JOURNAL` finds."""
        with self._read() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

"""The journal in its database: its tables, its address, entries, feedback, and retention.

SQLite commits to disk at every transaction (WAL, synchronous=FULL): neither a killed process nor a
power cut loses what was committed. The schema grows by columns that may be empty, and by indexes.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from rerank.data.checks import as_text, query_hash
from rerank.data.records import query_row
from rerank.errors import InputError, JournalError
from rerank.protocols import GivenAnswer
from rerank.retrieval.corpus import place_of
from rerank.types import Assessment

SCHEMA = "6"
METADATA = sa.MetaData()
VERSION = sa.Table(
    "rerank_journal_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True)
)
JOURNAL = sa.Table(
    "rerank_journal",
    METADATA,
    sa.Column("entry_id", sa.String(24), primary_key=True),  # sorts by time; not shown to clients
    sa.Column("answer_id", sa.String(64), nullable=False),  # of the request; feedback uses it
    sa.Column("time", sa.Double, nullable=False),  # when it was answered: seconds since 1970
    sa.Column("mode", sa.String(16), nullable=False),
    sa.Column("question", sa.Text),  # this and other texts: None where they are left out
    sa.Column("question_hash", sa.String(16), nullable=False),
    sa.Column("asked", sa.Text),  # JSON: the whole query, with metadata and passages it brought
    sa.Column("passages", sa.Text, nullable=False),  # JSON: the best, with their scores
    sa.Column("top_doc_id", sa.Text),  # None if no passage was found
    sa.Column("top_document", sa.Text),
    sa.Column("confidence", sa.Double, nullable=False),
    sa.Column("sufficiency", sa.Double, nullable=False),
    sa.Column("level", sa.String(16), nullable=False),
    sa.Column("verdict", sa.String(16), nullable=False),
    sa.Column("accepted", sa.Boolean, nullable=False),
    sa.Column("decision", sa.String(64), nullable=False),
    sa.Column("answer", sa.Text),
    sa.Column("answer_hash", sa.String(16)),
    sa.Column("attribution", sa.Double),  # share of the answer's sentences that sources support
    sa.Column("model", sa.String(64), nullable=False),  # its version
    sa.Column("latency", sa.Double, nullable=False),  # seconds
    sa.Column("features", sa.LargeBinary),  # of the ranking, float64; None: no passage
    sa.Column("threshold", sa.Double),  # confidence from which it is accepted
    sa.Column("answered_by", sa.String(16)),  # of two models: first or second; None: one model
    # feedback on the answer
    sa.Column("right", sa.Boolean),  # None: no feedback yet
    sa.Column("comment", sa.Text),
    sa.Column("judged", sa.Double),  # time of the feedback: seconds since 1970
    # the first feedback, which no later one replaces: sequential tests read it
    sa.Column("first_right", sa.Boolean),
    sa.Column("first_judged", sa.Double),
    sa.Index("rerank_journal_answer_id", "answer_id"),
    sa.Index("rerank_journal_question_hash", "question_hash"),
    sa.Index("rerank_journal_time", "time"),
    sa.Index("rerank_journal_judged", "judged"),
)
Row = Mapping[str, Any]
Entry = dict[str, Any]  # a row to be written: the columns of `JOURNAL` without the feedback

LOCK = 7_236_145  # PostgreSQL's lock while the schema is changed; an arbitrary number
EXPECTED = "expected sqlite:///PATH or postgresql://USER@HOST/DATABASE"
KEPT = 10  # passages in an entry, best first
ACCEPTED, ADVISORY = "accepted", "advisory only"  # decisions on a retrieval
ANSWERED, UNSURE, REFUSED = "answered", "answered with low confidence", "refused"  # on an answer
FIRST_STAGE = " first stage"  # after the model whose reranker failed: none of its numbers
PATIENCE = 5.0  # seconds to wait for locks held by others
PRUNED = 1000  # entries removed in one transaction: few, so that writers wait only briefly
LONGEST_COMMENT = 10_000  # characters
NO_PASSAGES = "[]"  # passages of an entry whose texts are past retention
DAY = 86_400.0
INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
HASHED = "#"  # begins the hash of an id that came with a question, in an entry without texts


class RefusedValueError(JournalError):
    """The database works, but rejects one of the values."""


def open_engine(url: str, *, patience: float) -> sa.Engine:
    """The engine of a journal's URL; it waits at most `patience` seconds for locks held by others.

    Raises:
        InputError: it is no URL, or not one of SQLite or PostgreSQL.
    """
    try:
        place = make_url(url)
    except (exc.ArgumentError, ValueError):
        hidden = re.sub(r"://[^/]*@", "://***@", url)  # may have a password
        raise InputError(f"{hidden!r:.200} is not a URL of a journal; {EXPECTED}") from None
    kind, name = place.get_backend_name(), _without_password(place)
    on_sqlite = kind == "sqlite" and place.database not in (None, "", ":memory:")
    if not on_sqlite and kind != "postgresql":
        raise InputError(f"{name!r:.200} cannot hold a journal; {EXPECTED}")
    wait = round(1000 * patience)
    timeouts = f"-c lock_timeout={wait} -c statement_timeout={12 * wait}"
    pooled: dict[str, Any] = {
        "pool_size": 1,
        "max_overflow": 8,
        "pool_timeout": patience,
        "pool_pre_ping": True,  # notices a restarted server
        "connect_args": {"connect_timeout": max(2, round(patience)), "options": timeouts},
    }
    single = {"poolclass": NullPool, "connect_args": {"timeout": patience}}
    place = place.set(drivername="sqlite+pysqlite" if on_sqlite else "postgresql+psycopg")
    try:
        engine = sa.create_engine(place, **(single if on_sqlite else pooled))
    except (exc.ArgumentError, ValueError) as error:
        raise InputError(f"{name!r:.200} cannot hold a journal: {error}") from None
    if on_sqlite:
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves, for the schema too
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _without_password(url: URL) -> str:
    """The URL without its password and its options, which may have one too."""
    plain = url.set(drivername=url.get_backend_name(), query={})
    return plain.render_as_string(hide_password=True)


@contextmanager
def transaction(engine: sa.Engine, *, writes: bool = False) -> Iterator[sa.Connection]:
    """A transaction, committed at the end; the database's errors are raised in one sentence.

    Raises:
        RefusedValueError: the database rejects one of the values.
        JournalError: it cannot be reached, is locked, full, damaged or not a database.
    """
    try:
        with engine.connect().execution_options(writes=writes) as connection, connection.begin():
            yield connection
    except InputError:
        raise
    except (exc.SQLAlchemyError, OSError, ValueError, OverflowError) as error:
        cause = getattr(error, "orig", None) or error
        if isinstance(error, exc.ProgrammingError):  # about a value, if no server was asked yet
            of_value = getattr(cause, "sqlstate", None) is None
        elif isinstance(error, exc.DBAPIError):
            of_value = isinstance(error, (exc.DataError, exc.IntegrityError))
        else:
            of_value = isinstance(error, (exc.StatementError, ValueError, OverflowError))
        why = str(cause).strip().partition("\n")[0] or type(cause).__name__
        raise (RefusedValueError if of_value else JournalError)(
            f"the journal {_without_password(engine.url)} cannot be used: {why:.300}"
        ) from None


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
    text, decision = None, ACCEPTED if assessment.accepted else ADVISORY
    if answer is not None:
        text, unsure = _storable_text(answer.answer), answer.low_confidence
        decision = REFUSED if answer.refused else UNSURE if unsure else ANSWERED
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
        "decision": decision,
        "answer": text,
        "answer_hash": None if text is None else query_hash(text),
        "attribution": None if answer is None else answer.attribution_coverage,
        "model": f"{model}{FIRST_STAGE if assessment.first_stage else ''}",
        "latency": latency,
        "answered_by": assessment.answered_by or None,
        "features": (assessment.asked_before or assessment).features.astype("<f8").tobytes()
        if fitted
        else None,
    }
    if without_text:
        entry |= dict.fromkeys(("question", "top_document", "answer"))
    return entry


def _storable_text(text: str) -> str:
    """The text in a form that every database accepts: without NUL and without lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class JournalStore(AbstractContextManager["JournalStore"]):
    """A journal by its URL: `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`.

    Many threads and processes may use one journal. `patience` (default `PATIENCE`) is how many
    seconds to wait for locks held by others. With `create` it is made if there is none.
    """

    def __init__(self, url: str, *, create: bool = False, patience: float | None = None) -> None:
        self._engine = open_engine(url, patience=PATIENCE if patience is None else patience)
        self.name = _without_password(self._engine.url)
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
        """Check that the journal exists, and make a new one if that is wanted."""
        missing = InputError(
            f"there is no journal at {self.name}; `rerank serve --journal` makes one"
        )
        on_sqlite = self._engine.dialect.name == "sqlite"
        if on_sqlite and not self._create and not Path(self._engine.url.database or "").is_file():
            raise missing
        with transaction(self._engine) as connection:
            held = sa.inspect(connection).has_table(VERSION.name)
            version = connection.scalar(sa.select(VERSION.c.version_num)) if held else None
        if version == SCHEMA:
            return
        if version is None and not self._create:
            raise missing
        if version is not None:
            raise InputError(
                f"the journal {self.name} was made by another version (schema {version:.40}); "
                f"expected schema {SCHEMA}: use that version, or begin a new journal"
            )
        with self._write() as connection:
            if not on_sqlite:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            METADATA.create_all(connection)
            connection.execute(sa.delete(VERSION))
            connection.execute(sa.insert(VERSION).values(version_num=SCHEMA))

    def _write(self) -> AbstractContextManager[sa.Connection]:
        return transaction(self._engine, writes=True)

    def rows(self, query: sa.Select[Any]) -> list[Row]:
        """The rows that a query of `JOURNAL` finds."""
        with transaction(self._engine) as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def add(self, entries: Sequence[Entry]) -> None:
        """Write entries, all or none (RefusedValueError). Those already there are unchanged."""
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
        c, now = JOURNAL.c, time.time()
        columns = (c.entry_id, c.top_doc_id, c.answer_hash)
        newest = sa.select(*columns).where(c.answer_id == answer_id).order_by(c.entry_id.desc())
        same = sa.and_(c.right.is_not(None), c.right == bool(right))
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
            of_entry = sa.update(JOURNAL).where(c.entry_id == entry.entry_id)
            connection.execute(of_entry.values(values))
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
            removed += self._remove(c.time < time.time() - days * DAY)
        if rows:
            last = sa.select(c.entry_id).order_by(c.entry_id.desc()).offset(rows).limit(1)
            if beyond := self.rows(last):
                removed += self._remove(c.entry_id <= beyond[0]["entry_id"])
        return removed

    def _remove(self, old: sa.ColumnElement[bool]) -> int:
        """Remove the texts of judged entries, and the other entries; the number of the latter."""
        c = JOURNAL.c
        texts: dict[Any, Any] = dict.fromkeys((c.question, c.asked, c.answer, c.comment))
        own = c.mode != "search"  # their documents came with the question, and are texts too
        own_id = sa.and_(own, c.top_doc_id.not_like(f"{HASHED}%"))
        texts[c.top_document] = sa.case((own, sa.null()), else_=c.top_document)
        texts[c.passages] = NO_PASSAGES
        own_text = sa.and_(own, c.top_document.is_not(None))
        has_text = sa.or_(c.asked.is_not(None), c.passages != NO_PASSAGES, own_text, own_id)
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
            connection.execute(sa.update(JOURNAL).where(judged).values(texts))
        unjudged = sa.select(c.entry_id).where(old, c.right.is_(None)).limit(PRUNED)
        some, removed, count = sa.delete(JOURNAL).where(c.entry_id.in_(unjudged)), 0, PRUNED
        while count == PRUNED:
            with self._write() as connection:
                count = connection.execute(some).rowcount
            removed += count
        return removed

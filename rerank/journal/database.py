"""The database of a journal: its address, connections, tables, and errors as one sentence.

SQLite commits to disk at every transaction (WAL, synchronous=FULL): neither a killed process nor a
power cut loses what was committed. The schema grows by columns that may be empty, and by indexes:
an older journal is given what it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateColumn

from rerank.errors import InputError, JournalError

SCHEMA, OLDER = "5", ("1", "2", "3", "4")
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
    sa.Column("features", sa.LargeBinary),  # of the ranking, float64; None: no passage, or older
    sa.Column("threshold", sa.Double),  # confidence from which it is accepted; None: older
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

LOCK = 7_236_145  # PostgreSQL's lock while the schema is changed; an arbitrary number
EXPECTED = "expected sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def address(url: str) -> URL:
    """The URL with the driver that we use."""
    try:
        place = make_url(url)
    except (exc.ArgumentError, ValueError):
        hidden = re.sub(r"://[^/]*@", "://***@", url)  # may have a password
        raise InputError(f"{hidden!r:.200} is not a URL of a journal; {EXPECTED}") from None
    kind = place.get_backend_name()
    if kind == "postgresql":
        return place.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and place.database not in (None, "", ":memory:"):
        return place.set(drivername="sqlite+pysqlite")
    raise InputError(f"{without_password(place)!r:.200} cannot hold a journal; {EXPECTED}")


def without_password(url: URL) -> str:
    """The URL without its password and its options, which may have one too."""
    plain = url.set(drivername=url.get_backend_name(), query={})
    return plain.render_as_string(hide_password=True)


def open_engine(url: URL, *, patience: float) -> sa.Engine:
    """An engine whose statements wait at most `patience` seconds for locks held by others."""
    sqlite = url.get_backend_name() == "sqlite"
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
    try:
        engine = sa.create_engine(url, **(single if sqlite else pooled))
    except (exc.ArgumentError, ValueError) as error:
        raise InputError(f"{without_password(url)!r:.200} cannot hold a journal: {error}") from None
    if sqlite:
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


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that may write, committed at the end."""
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        yield connection


class RefusedValueError(JournalError):
    """The database works, but rejects one of the values."""


@contextmanager
def one_sentence_errors(engine: sa.Engine) -> Iterator[None]:
    """Raise the database's errors with a message of one sentence.

    Raises:
        RefusedValueError: the database rejects one of the values.
        JournalError: it cannot be reached, is locked, full, damaged or not a database.
    """
    try:
        yield
    except (exc.SQLAlchemyError, OSError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        cause = getattr(error, "orig", None) or error
        kind = RefusedValueError if _is_about_values(error, cause) else JournalError
        why = str(cause).strip().partition("\n")[0] or type(cause).__name__
        raise kind(
            f"the journal {without_password(engine.url)} cannot be used: {why:.300}"
        ) from None


def _is_about_values(error: Exception, cause: object) -> bool:
    """Whether an error is about values: the driver says so, or no server was asked yet."""
    if isinstance(error, exc.ProgrammingError):
        return getattr(cause, "sqlstate", None) is None
    if isinstance(error, exc.DBAPIError):
        return isinstance(error, (exc.DataError, exc.IntegrityError))
    return isinstance(error, (exc.StatementError, ValueError, OverflowError))


def bring_up_to_date(engine: sa.Engine, *, create: bool) -> None:
    """Make the schema of this version, or of an older journal what it lacks, in one transaction."""
    name, database = without_password(engine.url), engine.url.database or ""
    missing = InputError(f"there is no journal at {name}; `rerank serve --journal` makes one")
    sqlite = engine.dialect.name == "sqlite"
    if sqlite and not create and not Path(database).is_file():
        raise missing
    with one_sentence_errors(engine):
        with engine.connect() as connection:
            held = sa.inspect(connection).has_table(VERSION.name)
            version = connection.scalar(sa.select(VERSION.c.version_num)) if held else None
        if version == SCHEMA:
            return
        if version is None and not create:
            raise missing
        if version not in (None, *OLDER):
            raise InputError(
                f"the journal {name} was made by a newer version (schema {version:.40}); expected "
                f"schema {SCHEMA}: update calibrated-rerank"
            )
        with writing(engine) as connection:
            if not sqlite:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            _make_what_is_missing(connection)


def _make_what_is_missing(connection: sa.Connection) -> None:
    METADATA.create_all(connection)
    there = {column["name"] for column in sa.inspect(connection).get_columns(JOURNAL.name)}
    for column in JOURNAL.c:
        if column.name not in there:
            added = CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {JOURNAL.name} ADD COLUMN {added}"))
    for index in JOURNAL.indexes:
        index.create(connection, checkfirst=True)
    if "first_right" not in there:  # of earlier judgements only the last is known
        first = {"first_right": JOURNAL.c.right, "first_judged": JOURNAL.c.judged}
        connection.execute(sa.update(JOURNAL).values(first))
    connection.execute(sa.delete(VERSION))
    connection.execute(sa.insert(VERSION).values(version_num=SCHEMA))

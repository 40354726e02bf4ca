"""The table of the journal as of the newest migration (a test compares the two)."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Double, Index, LargeBinary, MetaData, String, Table, Text

VERSION_TABLE = "rerank_journal_version"  # where Alembic notes the revision
METADATA = MetaData()
JOURNAL = Table(
    "rerank_journal",
    METADATA,
    Column("entry_id", String(24), primary_key=True),
    Column("answer_id", String(64), nullable=False),
    Column("time", Double, nullable=False),
    Column("mode", String(16), nullable=False),
    Column("question", Text),
    Column("question_hash", String(16), nullable=False),
    Column("asked", Text),
    Column("passages", Text, nullable=False),
    Column("top_doc_id", Text),
    Column("top_document", Text),
    Column("confidence", Double, nullable=False),
    Column("sufficiency", Double, nullable=False),
    Column("level", String(16), nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("accepted", Boolean, nullable=False),
    Column("decision", String(64), nullable=False),
    Column("answer", Text),
    Column("answer_hash", String(16)),
    Column("attribution", Double),
    Column("model", String(64), nullable=False),
    Column("latency", Double, nullable=False),
    Column("features", LargeBinary),  # None: of a version before these were kept, or nothing found
    Column("threshold", Double),  # None: of a version before it was kept
    # feedback on the answer
    Column("right", Boolean),  # None: no feedback yet
    Column("comment", Text),
    Column("judged", Double),  # time of the feedback: seconds since 1970
    # the first feedback, which no later one replaces: sequential tests read it
    Column("first_right", Boolean),
    Column("first_judged", Double),
    Index("rerank_journal_answer_id", "answer_id"),
    Index("rerank_journal_question_hash", "question_hash"),
    Index("rerank_journal_time", "time"),
    Index("rerank_journal_judged", "judged"),
)

"""The first table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

TABLE = "rerank_journal"


def upgrade() -> None:
    """Create the table and its indexes."""
    op.create_table(
        TABLE,
        sa.Column("entry_id", sa.String(24), primary_key=True),
        sa.Column("answer_id", sa.String(64), nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("question", sa.Text),
        sa.Column("question_hash", sa.String(16), nullable=False),
        sa.Column("asked", sa.Text),
        sa.Column("passages", sa.Text, nullable=False),
        sa.Column("top_doc_id", sa.Text),
        sa.Column("top_document", sa.Text),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("sufficiency", sa.Double, nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("accepted", sa.Boolean, nullable=False),
        sa.Column("decision", sa.String(64), nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("answer_hash", sa.String(16)),
        sa.Column("attribution", sa.Double),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("latency", sa.Double, nullable=False),
        sa.Column("right", sa.Boolean),
        sa.Column("comment", sa.Text),
        sa.Column("judged", sa.Double),
    )
    for column in ("answer_id", "time", "judged"):
        op.create_index(f"{TABLE}_{column}", TABLE, [column])

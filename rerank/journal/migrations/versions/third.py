"""An index of the questions, by which the Watch page finds judgements of the same answer."""

from __future__ import annotations

from alembic import op

revision = "3"
down_revision = "2"

INDEX, TABLE = "rerank_journal_question_hash", "rerank_journal"


def upgrade() -> None:
    """Create the index."""
    op.create_index(INDEX, TABLE, ["question_hash"])

"""The threshold by which each answer was accepted or not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"

TABLE = "rerank_journal"


def upgrade() -> None:
    """Add the column, empty for the entries that are there."""
    op.add_column(TABLE, sa.Column("threshold", sa.Double))

"""The features of each ranking."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

TABLE = "rerank_journal"


def upgrade() -> None:
    """Add the column, empty for the entries that are there."""
    op.add_column(TABLE, sa.Column("features", sa.LargeBinary))

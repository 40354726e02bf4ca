"""The first judgement of each entry: what a sequential test saw, whatever is judged later."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

TABLE = "rerank_journal"


def upgrade() -> None:
    """Add the columns; of earlier judgements only the last is known."""
    op.add_column(TABLE, sa.Column("first_right", sa.Boolean))
    op.add_column(TABLE, sa.Column("first_judged", sa.Double))
    op.execute(f'UPDATE {TABLE} SET first_right = "right", first_judged = judged')

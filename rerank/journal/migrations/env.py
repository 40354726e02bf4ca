"""Alembic's environment: runs the missing migrations over the connection that it is given."""

from __future__ import annotations

from alembic import context

from rerank.journal.database import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()

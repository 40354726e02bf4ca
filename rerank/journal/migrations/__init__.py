"""The migrations of the journal's table, one per file; run by Alembic."""

"""How the journal's table came to be, a step a file; run by Alembic."""

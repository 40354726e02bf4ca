"""A journal of assessed questions in a database, and people's feedback on the answers."""

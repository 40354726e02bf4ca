"""A journal of assessed questions in a database, and what people said of the answers."""

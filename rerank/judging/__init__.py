"""Judges: models that say whether the top passage answers a question, beside what people say."""

"""A folder of documents to a corpus of passages: a file a format. It knows nothing of models."""

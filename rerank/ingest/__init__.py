"""Reads a folder of documents into a corpus; one module per format. It knows nothing of models."""

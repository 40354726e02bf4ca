"""Rerankers and encoders behind an address."""

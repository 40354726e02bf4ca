"""Labelled sets built from the documentation of installed libraries."""

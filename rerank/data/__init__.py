"""Labelled sets and texts: read, checked, built."""

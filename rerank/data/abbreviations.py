"""Abbreviations whose full stop ends no sentence, for splitting text into sentences."""

from __future__ import annotations

SHORT = (r"e\.g", r"i\.e", "cf", "vs", "Dr", "Mr", "Mrs", "No", "Fig")
NOT_AFTER_SHORT = "".join(rf"(?<!\b{short}\.)" for short in SHORT)
"""The part of a regular expression that does not match after one of them."""

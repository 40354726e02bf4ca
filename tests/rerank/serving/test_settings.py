"""Bounds of a server: those that no server can keep are refused, and defaults agree elsewhere."""

from __future__ import annotations

import pytest

from rerank.data.records import LONGEST_PASSAGE, LONGEST_QUERY, LONGEST_RECORD, MAX_PASSAGES
from rerank.errors import InputError
from rerank.serving.settings import Settings


def test_settings_refuse() -> None:
    """Bounds that no server can keep are refused by name."""
    for name, value in {"queue": 0, "timeout": 0.0, "port": 70000, "poll": -1.0}.items():
        with pytest.raises(InputError, match=name):
            Settings(**{name: value})
    for origin in ("*", "https://app.example.org/", "app.example.org", "null"):
        with pytest.raises(InputError, match="allow_origin"):
            Settings(allow_origin=origin)
    two = Settings(allow_origin="https://a.example, http://localhost:5173")
    assert two.origins == ["https://a.example", "http://localhost:5173"]


def test_limits_are_those_of_files() -> None:
    """A query and its passages that a file may hold, a request may hold too."""
    settings = Settings()
    limits = (settings.max_query, settings.max_document, settings.max_documents)
    assert limits == (LONGEST_QUERY, LONGEST_PASSAGE, MAX_PASSAGES)
    assert settings.max_body == LONGEST_RECORD

"""Entries and stores of a journal for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assessments import make_assessment

if TYPE_CHECKING:
    from rerank.journal.store import Entry


def make_entry(
    answer_id: str = "a", *, confidence: float = 0.8, texts: Sequence[str] = (), **changed: Any
) -> Entry:
    """An entry of a made assessment of passages with these texts, with fields replaced.

    Without texts it is as if one passage was found, whose scores were not kept.
    """
    from rerank.journal.store import entry_of

    found = make_assessment(confidence=confidence, texts=texts)
    made = entry_of(found, answer_id=answer_id, model="m1", latency=0.01)
    return {**made, "top_doc_id": made["top_doc_id"] or "d0", **changed}


def sqlite_url(folder: Path) -> str:
    """The URL of a journal in a folder."""
    return f"sqlite:///{folder / 'journal.db'}"

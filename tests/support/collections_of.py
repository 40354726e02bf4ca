"""A labelled set's corpus as a collection of another search system, each made by its own client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rerank.data.labelled_set import LabelledSet
from rerank.retrieval.dense import Encoder

SETTINGS = """
system = "{system}"
url = "{url}"
collection = "passages"
id = "id"
title = "title"
text = "text"
keyword = "{keyword}"
vector = "vector"
metadata = ["place"]
"""


def rows_of(labelled: LabelledSet, encoder: Encoder) -> list[dict[str, Any]]:
    """A row a passage, with its vector."""
    passages = list(labelled.corpus.values())
    vectors = encoder.encode([p.full_text for p in passages])
    return [
        {"id": p.doc_id, "title": p.title, "text": p.text, "place": f"page {i}", "vector": v}
        for i, (p, v) in enumerate(zip(passages, vectors, strict=True))
    ]


def make_lancedb(rows: list[dict[str, Any]], place: Path) -> Path:
    """A table with a full-text index; the TOML file that names it."""
    lancedb = pytest.importorskip("lancedb")
    from lancedb.index import FTS

    table = lancedb.connect(place / "tables").create_table("passages", data=rows)
    table.create_index("text", config=FTS())
    return settings_file(place, system="lancedb", url="tables", keyword="text")


def settings_file(place: Path, **named: str) -> Path:
    """The TOML file in `place`."""
    path = place / f"{named['system']}.toml"
    path.write_text(SETTINGS.format(**named))
    return path


MAKERS = {"lancedb": make_lancedb}

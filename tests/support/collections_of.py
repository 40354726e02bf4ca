"""A labelled set's corpus as a collection of another search system, each made by its own client."""

from __future__ import annotations

from collections import Counter
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
    """One row per passage, with its vector."""
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


def make_qdrant(rows: list[dict[str, Any]], place: Path) -> Path:
    """A collection in a folder, with the sparse vectors of FastEmbed's BM25."""
    pytest.importorskip("mmh3")
    pytest.importorskip("qdrant_client")
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(place / "points"))
    width = len(rows[0]["vector"])
    client.create_collection(
        "passages",
        vectors_config={"vector": models.VectorParams(size=width, distance=models.Distance.COSINE)},
        sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    points = [
        models.PointStruct(
            id=i,
            vector={"vector": row["vector"].tolist(), "bm25": models.SparseVector(**bm25_of(row))},
            payload={name: value for name, value in row.items() if name != "vector"},
        )
        for i, row in enumerate(rows)
    ]
    client.upsert("passages", points)
    client.close()
    return settings_file(place, system="qdrant", url="points", keyword="bm25")


def bm25_of(row: dict[str, Any], *, k: float = 1.2, b: float = 0.75) -> dict[str, Any]:
    """The sparse vector of a passage: the term frequencies of BM25, of 256 words on average."""
    from rerank.systems.qdrant import NOT_WORDS, bm25_indices

    words = NOT_WORDS.sub(" ", row["text"].lower()).split()
    counts = Counter(i for word in words for i in bm25_indices(word, language="english"))
    norm = k * (1 - b + b * len(words) / 256)
    values = [count * (k + 1) / (count + norm) for count in counts.values()]
    return {"indices": list(counts), "values": values}


def settings_file(place: Path, **named: str) -> Path:
    """The TOML file in `place`."""
    path = place / f"{named['system']}.toml"
    path.write_text(SETTINGS.format(**named))
    return path


SERVERS = {"elasticsearch": "elasticsearch", "opensearch": "opensearchpy"}  # and their clients
MAKERS = {"lancedb": make_lancedb, "qdrant": make_qdrant}

"""Labelled lists of a system that is none of ours, drawn from a world whose truth is known.

Of a query's passages one is right, or none; what is right scores higher in both stages, by more
where the query is easy. `bm25` brings every passage, `reranker` the best half of these.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np

STAGES = ("bm25", "reranker")


def known_lists(count: int, *, seed: int = 0, length: int = 8) -> list[dict[str, Any]]:
    """The lines of `count` queries, as `rerank.data.lists` reads them; a fifth has no answer."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(count):
        right = rng.integers(length) if rng.random() > 0.2 else -1
        ease = rng.exponential(2.0)
        bm25 = rng.normal(size=length) + ease * (np.arange(length) == right)
        reranker = rng.normal(size=length) + 1.5 * ease * (np.arange(length) == right)
        brought = bm25 >= np.median(bm25)
        passages = [
            {
                "_id": f"q{q}d{i}",
                "scores": {
                    "bm25": float(bm25[i]),
                    "reranker": float(reranker[i]) if brought[i] else None,
                },
                "right": bool(i == right),
            }
            for i in range(length)
        ]
        rows.append(
            {"_id": f"q{q}", "query": f"question number {q} of world {seed}", "passages": passages}
        )
    return rows


def unlabelled(row: dict[str, Any]) -> dict[str, Any]:
    """The line without what is right."""
    bare = copy.deepcopy(row)
    for passage in bare["passages"]:
        del passage["right"]
    return bare


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path

"""BM25 and dense over one corpus: built once, saved, opened again; gives a query's candidates.

The corpus text stays on disk and is read by offset, so an open index holds no more of it in memory
than the passages that the latest queries brought back.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from calibration.store import read_manifest, write_folder
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.dense import Encoder, Vectors, cosines
from rerank.retrieval.fusion import ranks, reciprocal_rank_fusion, top
from rerank.text import words
from rerank.types import Candidates, InputError, Ints, Passage, Query

INDEX_KIND = "an index"
KEPT_PASSAGES = 8192  # in memory, because many queries bring back the same ones


class Index:
    """An open index folder. Safe to read from many threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: dict[str, Any] = read_manifest(folder)
        self.language = str(self.manifest["language"])
        self.bm25 = BM25.open(folder)
        self.vectors: Vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        self.offsets: Ints = np.load(folder / "offsets.npy", allow_pickle=False)
        with (folder / "corpus.jsonl").open("rb") as corpus:
            self._bytes = mmap.mmap(corpus.fileno(), 0, access=mmap.ACCESS_READ)
        self.passage = lru_cache(maxsize=KEPT_PASSAGES)(self._read)

    def __len__(self) -> int:
        """Count of passages."""
        return len(self.offsets) - 1

    def _read(self, row: int) -> Passage:
        """The passage at a row, read from disk; `passage` keeps the latest ones."""
        kept = json.loads(self._bytes[self.offsets[row] : self.offsets[row + 1]])
        return Passage(kept["_id"], kept["title"], kept["text"], kept["metadata"])

    def candidates(
        self, query: Query, vector: Vectors, *, pool: int, count: int, rrf_k: int
    ) -> Candidates:
        """The `count` best fused passages of the `pool` best of each stage, best first.

        BM25 finds only passages that share a word with the query (score above 0).
        """
        lexical = self.bm25.scores(words(query.text, language=self.language))
        dense = cosines(self.vectors, vector)
        by_bm25 = top(lexical, pool)
        found = [by_bm25[lexical[by_bm25] > 0], top(dense, pool)]
        fused = reciprocal_rank_fusion(found, len(self), k=rrf_k)
        rows = top(fused, min(count, int((fused > 0).sum())))
        bm25_rank, dense_rank = (ranks(f, len(self), missing=pool + 1) for f in found)
        return Candidates(
            query=query,
            rows=rows,
            bm25=lexical[rows],
            dense=dense[rows],
            bm25_rank=bm25_rank[rows],
            dense_rank=dense_rank[rows],
            fused=fused[rows],
        )


def build_index(
    corpus: Iterable[Passage],
    folder: Path,
    encoder: Encoder,
    *,
    language: str = "english",
    overwrite: bool = False,
) -> Index:
    """Build an index of `corpus` in `folder`, atomically, with a progress bar; and open it.

    Raises:
        InputError: the corpus is empty.
        StoreError: `folder` exists and `overwrite` is False.
    """
    passages = list(corpus)
    if not passages:
        raise InputError("the corpus holds no passage; an index needs at least one")

    def fill(part: Path) -> Mapping[str, Any]:
        _write_passages(passages, part)
        texts = [p.full_text for p in passages]
        BM25.build([words(t, language=language) for t in texts]).save(part)
        np.save(part / "vectors.npy", encoder.encode(texts, label="indexing passages"))
        return {
            "language": language,
            "passages": len(passages),
            "encoder": {
                "name": encoder.files.name,
                "fingerprint": encoder.files.fingerprint,
                "max_length": encoder.max_length,
            },
        }

    write_folder(folder, fill, overwrite=overwrite, kind=INDEX_KIND)
    return Index(folder)


def _write_passages(passages: Sequence[Passage], folder: Path) -> None:
    """One JSON object a line, and where each line starts."""
    offsets = [0]
    with (folder / "corpus.jsonl").open("wb") as out:
        for p in passages:
            row = {"_id": p.doc_id, "title": p.title, "text": p.text, "metadata": dict(p.metadata)}
            offsets.append(offsets[-1] + out.write(json.dumps(row).encode() + b"\n"))
    np.save(folder / "offsets.npy", np.array(offsets, dtype=np.int64))

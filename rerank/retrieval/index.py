"""BM25 and dense over one corpus: built once, saved, opened again; searched by query and vector.

Text, vectors and postings are read from disk: an open index holds in memory only the vocabulary and
the passages that the latest queries found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rerank.config import Config
from rerank.data.words import words
from rerank.errors import InputError
from rerank.progress import progress
from rerank.retrieval.approximate import Graph, library, write_graph
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.checks import check_index
from rerank.retrieval.corpus import Corpus, write_corpus
from rerank.retrieval.dense import CHUNK, Encoder, Vectors, cosines
from rerank.retrieval.fusion import ranks, reciprocal_rank_fusion, top
from rerank.retrieval.known_vectors import KnownVectors
from rerank.storage.folder import read_manifest, write_folder
from rerank.types import FirstStage, Ints, Passage

INDEX_KIND = "an index"
LAYOUT = 3  # of the files in the folder, and of what a word is


class Index:
    """An open index folder. Safe to read from many threads.

    Raises:
        FolderError: the folder has no manifest.
        InputError: another version of this project wrote it.
        MissingExtraError: its dense search is approximate, and USearch is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: dict[str, Any] = read_manifest(folder)
        if self.manifest.get("layout") != LAYOUT:
            raise InputError(
                f"{folder}: the index has layout {self.manifest.get('layout')}, this version reads "
                f"{LAYOUT}; build it again"
            )
        self.language = str(self.manifest["language"])
        self.bm25 = BM25.open(folder)
        self.vectors: Vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        self.corpus = Corpus(folder)
        self.graph = Graph(folder, self.vectors) if self.manifest["approximate"] else None
        self.passage = self.corpus.passage
        self.weight = self.bm25.weight

    def __len__(self) -> int:
        """Count of passages."""
        return len(self.corpus)

    def refuse_mismatch(self, config: Config, encoder: Encoder) -> None:
        """Refuse a configuration or an encoder that the index was not built for.

        Raises:
            InputError: saying which part differs.
        """
        dense = "exact" if self.graph is None else "approximate"
        if (self.language, dense) != (config.language, config.dense):
            raise InputError(
                f"{self.folder}: the index is of language {self.language} and {dense} dense "
                f"search, the configuration says {config.language} and {config.dense}; build it "
                "again"
            )
        made_by, files = self.manifest["encoder"], encoder.files
        if (made_by["fingerprint"], made_by["max_length"]) != (
            files.fingerprint,
            encoder.max_length,
        ):
            raise InputError(
                f"{self.folder}: the index was made by {made_by['name']} at "
                f"{made_by['max_length']} tokens (fingerprint {made_by['fingerprint'][:12]}), the "
                f"configuration says {files.name} at {encoder.max_length} tokens "
                f"(fingerprint {files.fingerprint[:12]}); build the index again"
            )

    def check(self) -> None:
        """Refuse arrays that do not fit together: for an index that others may have written.

        Raises:
            InputError: naming the array.
        """
        corpus = self.corpus
        check_index(self.bm25, self.vectors, corpus.offsets, text_bytes=corpus.text_bytes)
        if self.graph is not None:
            self.graph.check()

    def search(
        self, query: str, vector: Vectors, *, pool: int, count: int, rrf_k: int
    ) -> FirstStage:
        """The `count` best fused passages of the `pool` best of each stage, best first.

        BM25 finds only passages that share a word with the query (score above 0).
        """
        lexical = self.bm25.scores(words(query, language=self.language))
        by_bm25 = top(lexical, pool)
        lists = [by_bm25[lexical[by_bm25] > 0], self._nearest(vector, pool)]
        rows_found, scores = reciprocal_rank_fusion(lists, k=rrf_k)
        best = top(scores, count)
        rows = rows_found[best]
        bm25_rank, dense_rank = (ranks(f, rows, missing=pool + 1) for f in lists)
        return FirstStage(
            rows=rows,
            bm25=lexical[rows],
            dense=cosines(self.vectors[rows], vector),
            bm25_rank=bm25_rank,
            dense_rank=dense_rank,
            fused=scores[best],
        )

    def _nearest(self, vector: Vectors, count: int) -> Ints:
        return (
            self.graph.nearest(vector, count) if self.graph else top(self.vectors @ vector, count)
        )


def build_index(
    corpus: Iterable[Passage],
    folder: Path,
    encoder: Encoder,
    *,
    language: str = "english",
    approximate: bool = False,
    overwrite: bool = False,
    known: Iterable[Path] = (),
) -> Index:
    """Build an index of `corpus` in `folder`, atomically, with a progress bar; and open it.

    The corpus is read once, and its text is never held in memory; its postings are, at about 40
    bytes each, until they are written. With `approximate`, dense search uses a graph. Texts in the
    indexes of the folders `known` are not encoded again.

    Raises:
        InputError: the corpus is empty.
        MissingExtraError: dense search is approximate, and USearch is not installed.
        FolderError: `folder` exists and `overwrite` is False.
    """

    def fill(new: Path) -> Mapping[str, Any]:
        if not write_corpus(corpus, new):
            raise InputError("the corpus holds no passage; an index needs at least one")
        written = Corpus(new)
        BM25.build(_words(written, language)).save(new)
        known_vectors = KnownVectors(known, encoder, layout=LAYOUT)
        vectors = _write_vectors(written, known_vectors, new / "vectors.npy")
        if approximate:
            write_graph(vectors, new)
        return {
            "layout": LAYOUT,
            "language": language,
            "approximate": approximate,
            "passages": len(written),
            "encoder": {
                "name": encoder.files.name,
                "fingerprint": encoder.files.fingerprint,
                "max_length": encoder.max_length,
            },
        }

    if approximate:
        library()  # before the hours that encoding may take
    write_folder(folder, fill, overwrite=overwrite, kind=INDEX_KIND)
    return Index(folder)


def _words(corpus: Corpus, language: str) -> Iterator[list[str]]:
    with progress(len(corpus), "counting words", unit="text") as bar:
        for passage in corpus:
            yield words(passage.full_text, language=language)
            bar.update()


def _write_vectors(corpus: Corpus, encoder: KnownVectors, path: Path) -> Vectors:
    """Encode every passage, in chunks, into one array on disk; and open it.

    The array is written, not memory-mapped: so a full disk raises an error, where a map would end
    the process.

    Raises:
        OSError: the disk is full.
    """
    texts = (p.full_text for p in corpus)
    with path.open("wb") as out, progress(len(corpus), "indexing passages", unit="text") as bar:
        for start in range(0, len(corpus), CHUNK):
            vectors = encoder.encode(list(islice(texts, CHUNK)))
            if not start:
                header = np.lib.format.header_data_from_array_1_0(vectors)
                header["shape"] = (len(corpus), vectors.shape[1])
                np.lib.format.write_array_header_1_0(out, header)
            out.write(np.ascontiguousarray(vectors).data)
            bar.update(len(vectors))
    opened: Vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    return opened

"""Approximate dense search, for corpora too large for exact search: a graph of neighbours.

HNSW (Malkov & Yashunin 2020) over vectors in 8 bits, by USearch, an optional package. The results
are ranked by exact cosine; they differ from exact search only in what the graph misses.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError, optional
from rerank.inference.engine import onnx_runtime
from rerank.progress import progress
from rerank.retrieval.fusion import top
from rerank.types import Ints

FILE = "vectors.usearch"
NEIGHBOURS = 32  # of each passage in the graph
BUILDING = 256  # candidates kept while a passage is inserted
SEARCHING = 512  # candidates kept during a search, at least
OVERSAMPLED = 3  # times the requested number are compared exactly
CHUNK = 4096  # passages per update of the progress bar

Vectors = NDArray[np.float32]


def write_graph(vectors: Vectors, folder: Path) -> None:
    """Write the graph of unit vectors (n, d) to `folder`, with a progress bar.

    Raises:
        MissingExtraError: USearch is not installed.
    """
    graph = library()(
        ndim=vectors.shape[1],
        metric="cos",
        dtype="i8",
        connectivity=NEIGHBOURS,
        expansion_add=BUILDING,
    )
    with progress(len(vectors), "linking passages", unit="text") as bar:
        for start in range(0, len(vectors), CHUNK):
            chunk = np.asarray(vectors[start : start + CHUNK])
            graph.add(np.arange(start, start + len(chunk), dtype=np.uint64), chunk)
            bar.update(len(chunk))
    graph.save(str(folder / FILE))


def searching(count: int) -> int:
    """Candidates kept during a search of `count` passages: 512 up to 29,000, then more.

    Of a million, 3,000 find 99.9% of the nearest hundred, in the mean of 200 queries, and 6,000 no
    more: what is missing lies where the graph does not lead.
    """
    return max(SEARCHING, round(3 * math.sqrt(count)))


class Graph:
    """An open graph; it stays on disk and is read from there. Safe to search from many threads.

    Raises:
        MissingExtraError: USearch is not installed.
    """

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        self._graph = library().restore(str(folder / FILE), view=True)
        self._graph.expansion_search = searching(len(vectors))
        self._vectors = vectors

    def check(self) -> None:
        """Refuse a graph whose number and width of vectors are not those of these vectors.

        Raises:
            InputError: saying what the graph holds.
        """
        expected, actual = self._vectors.shape, (len(self._graph), self._graph.ndim)
        if actual != expected or int(np.asarray(self._graph.keys).max(initial=0)) >= expected[0]:
            raise InputError(
                f"its graph is of {actual[0]} vectors of {actual[1]}, not of {expected}"
            )

    def nearest(self, query: Vectors, count: int) -> Ints:
        """About the `count` rows nearest to a unit query (d,), best first by exact cosine."""
        neighbours = self._graph.search(
            query, min(count * OVERSAMPLED, len(self._vectors)), threads=1
        )
        rows = np.sort(neighbours.keys.astype(np.int64))
        return rows[top(self._vectors[rows] @ query, count)]


def library() -> Any:
    """USearch's index class, imported so that ONNX Runtime works in the same process.

    USearch's wheel has its own C++ library, and exports the numbers by which that identifies the
    parts of a locale. ONNX Runtime compiles a regular expression on import; if USearch was imported
    first, it takes a wrong part and the process dies. So ONNX Runtime is imported first.

    Raises:
        MissingExtraError: USearch is not installed.
    """
    onnx_runtime()
    with optional():
        from usearch.index import Index
    return Index

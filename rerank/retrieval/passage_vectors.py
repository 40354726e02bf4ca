"""The vectors of an index: one for each window of each passage, on disk; and their search.

A passage is as near to a query as the nearest of its windows. Corpora too large for exact search
have a graph of neighbours: HNSW (Malkov & Yashunin 2020) over vectors in 8 bits, by USearch, an
optional package. The results are ranked by exact cosine; they differ from exact search only in what
the graph misses.
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
from rerank.retrieval.dense import Vectors, cosines, product
from rerank.retrieval.fusion import top
from rerank.types import Bools, Floats, Ints

FILE = "vectors.usearch"
NEIGHBOURS = 32  # of each passage in the graph
BUILDING = 256  # candidates kept while a passage is inserted
SEARCHING = 512  # candidates kept during a search, at least
OVERSAMPLED = 3  # times the requested number are compared exactly
CHUNK = 4096  # passages per update of the progress bar


def write_graph(vectors: Vectors, folder: Path) -> None:
    """Write the graph of unit vectors (n, d) to `folder`, with a progress bar."""
    sizes = {"ndim": vectors.shape[1], "connectivity": NEIGHBOURS, "expansion_add": BUILDING}
    graph = library()(metric="cos", dtype="i8", **sizes)
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
    """An open graph; it stays on disk and is read from there. Safe to search from many threads."""

    def __init__(self, folder: Path, vectors: Vectors) -> None:
        self._graph = library().restore(str(folder / FILE), view=True)
        self._graph.expansion_search = searching(len(vectors))
        self._vectors = vectors

    def check(self) -> None:
        """Refuse a graph whose number and width of vectors are not those of these vectors."""
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
    """
    onnx_runtime()
    with optional():
        from usearch.index import Index
    return Index


VECTORS = "vectors.npy"
STARTS = "vector_starts.npy"  # no such file: one vector per passage


class PassageVectors:
    """The vectors (m, d) of n passages; those of passage i are `starts[i]` to `starts[i + 1]`.

    They stay on disk and are read from there. Safe to search from many threads.
    """

    def __init__(self, folder: Path, *, approximate: bool = False) -> None:
        self.array: Vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        self.starts: Ints = (
            np.load(folder / STARTS, allow_pickle=False)
            if (folder / STARTS).exists()
            else np.arange(len(np.atleast_1d(self.array)) + 1)
        )
        self.graph = Graph(folder, self.array) if approximate else None

    def of(self, row: int) -> Vectors:
        """The vectors (w, d) of one passage."""
        return self.array[self.starts[row] : self.starts[row + 1]]

    def cosines(self, query: Vectors, rows: Ints) -> Floats:
        """The cosine of a unit query (d,) with each of these passages, shape (k,), in [-1, 1]."""
        counts = self.starts[rows + 1] - self.starts[rows]
        begins = np.r_[0, np.cumsum(counts)]  # of each passage in what follows
        numbers = np.arange(begins[-1]) + np.repeat(self.starts[rows] - begins[:-1], counts)
        return _highest(cosines(self.array[numbers], query), begins)

    def nearest(self, query: Vectors, count: int, allowed: Bools | None = None) -> Ints:
        """The `count` rows nearest to a unit query (d,), best first; about these with a graph.

        Of the rows `allowed` (n,) alone, if that is given: then always exactly.
        """
        if self.graph is None or allowed is not None:
            near = _highest(product(self.array, query), self.starts)
            if allowed is not None:
                near, count = np.where(allowed, near, -np.inf), min(count, int(allowed.sum()))
            return top(near, count)
        longer = len(self.array) > len(self.starts) - 1
        # several of the nearest windows may be of one passage
        found = self.graph.nearest(query, 2 * count if longer else count)
        rows = np.searchsorted(self.starts, found, side="right") - 1
        _, first = np.unique(rows, return_index=True)
        return rows[np.sort(first)][:count]


def _highest(values: NDArray[Any], starts: Ints) -> NDArray[Any]:
    """The highest value of each passage, shape (n,), of those of its windows (m,)."""
    return values if len(values) == len(starts) - 1 else np.maximum.reduceat(values, starts[:-1])

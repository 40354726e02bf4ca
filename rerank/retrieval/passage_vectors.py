"""The vectors of an index: one for each window of each passage, on disk; and their search.

A passage is as near to a query as the nearest of its windows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.retrieval.approximate import Graph
from rerank.retrieval.dense import Vectors, cosines, product
from rerank.retrieval.fusion import top
from rerank.types import Bools, Floats, Ints

VECTORS = "vectors.npy"
STARTS = "vector_starts.npy"  # no such file: one vector per passage


class PassageVectors:
    """The vectors (m, d) of n passages; those of passage i are `starts[i]` to `starts[i + 1]`.

    They stay on disk and are read from there. Safe to search from many threads.

    Raises:
        MissingExtraError: `approximate`, and USearch is not installed.
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

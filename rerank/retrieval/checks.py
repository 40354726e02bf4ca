"""Checks that the arrays of an open index fit together, so that no search reads out of bounds.

Each array is read once, in parts: this takes about as long as hashing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError
from rerank.retrieval.bm25 import BM25
from rerank.retrieval.passage_vectors import PassageVectors
from rerank.types import Ints

PART = 2**22  # numbers checked at a time
LARGEST = 1e6  # limit for cosines, idf and BM25 weights, which are all below a hundred


def check_index(bm25: BM25, vectors: PassageVectors, offsets: Ints, *, text_bytes: int) -> None:
    """Refuse arrays of another type, shape or range than `build_index` writes.

    `offsets` say where each passage begins in a text of `text_bytes`.

    Raises:
        InputError: naming the array.
    """
    passages = len(offsets) - 1
    _check_array("offsets", offsets, np.int64, (passages + 1,))
    _check_ends("offsets", offsets, text_bytes)
    if passages < 1:
        raise InputError("its offsets hold no passage")
    _check_array("vector starts", vectors.starts, np.int64, (passages + 1,))
    _check_ends("vector starts", vectors.starts, len(vectors.array), step=1)
    width = vectors.array.shape[-1:]
    _check_array("vectors", vectors.array, np.float32, (int(vectors.starts[-1]), *width))
    if bm25.size != passages:
        raise InputError(f"its postings are of {bm25.size} passages, its text of {passages}")
    terms = len(bm25.terms)
    _check_array("idf", bm25.term_idf, np.float64, (terms,))
    _check_array("starts", bm25.starts, np.int64, (terms + 1,))
    _check_array("rows", bm25.rows, np.int32, (len(bm25.rows),))
    _check_array("weights", bm25.weights, np.float64, (len(bm25.rows),))
    _check_ends("starts", bm25.starts, len(bm25.rows))
    numbers: list[tuple[str, NDArray[Any]]] = [
        ("vectors", vectors.array),
        ("idf", bm25.term_idf),
        ("weights", bm25.weights),
    ]
    for name, array in numbers:
        if not all((np.abs(block) <= LARGEST).all() for block in _parts(array)):
            raise InputError(f"its {name} hold a number that is not finite, or far too large")
    if not all(block.min() >= 0 and block.max() < passages for block in _parts(bm25.rows)):
        raise InputError("its rows point to a passage that does not exist")


def _check_array(name: str, array: NDArray[Any], kind: Any, shape: tuple[int, ...]) -> None:
    if array.dtype != kind or array.shape != shape or array.ndim != len(shape):
        raise InputError(
            f"its {name} are {array.dtype} of shape {array.shape}, expected {np.dtype(kind)} of "
            f"shape {shape}"
        )


def _check_ends(name: str, ends: Ints, last: int, *, step: int = 0) -> None:
    if len(ends) < 1 or ends[0] != 0 or ends[-1] != last or (np.diff(ends) < step).any():
        raise InputError(f"its {name} do not rise from 0 to {last}")


def _parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    flat = array.reshape(-1)
    return (flat[i : i + PART] for i in range(0, len(flat), PART))

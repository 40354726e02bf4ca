"""Which texts are nearly the same: shared word n-grams, found by min-wise hashing.

Texts in, pairs out. It knows nothing of labelled sets.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

RUN = 4
"""Words per n-gram (run)."""

ALIKE = 0.7
"""Share of all runs of two texts that both contain, from which they are near duplicates."""

BANDS, ROWS = 16, 4
"""Of min-wise hashes. Texts that share 70% of their runs are missed in 1% of the draws."""


def near_duplicates(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs of positions in `texts` that connect all near duplicates, directly or in a chain.

    Their resemblance (Broder 1997, "On the resemblance and containment of documents") is at least
    `ALIKE`. Texts without a word have no duplicates.
    """
    runs = [_runs(text) for text in texts]
    hashes = _min_hashes(runs)
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        buckets: dict[bytes, list[int]] = {}
        for place, row in enumerate(hashes[:, band * ROWS : (band + 1) * ROWS]):
            if not len(runs[place]):
                continue
            for other in buckets.setdefault(row.tobytes(), []):
                if (other, place) not in seen and _resemblance(runs[other], runs[place]) >= ALIKE:
                    seen.add((other, place))
                    yield other, place
                    break  # the other duplicates are already connected to that one
            else:
                buckets[row.tobytes()].append(place)


def _runs(text: str) -> NDArray[np.uint64]:
    """The distinct runs of words of a text, as sorted hashes; a shorter text is one run."""
    words = re.findall(r"\w+", text.lower())
    count = max(1, len(words) - RUN + 1) if words else 0
    runs = {" ".join(words[i : i + RUN]) for i in range(count)}
    return np.unique(np.array([zlib.crc32(run.encode()) for run in runs], dtype=np.uint64))


def _min_hashes(runs: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """(texts, BANDS * ROWS): the minimum of each hash over the runs (multiply and shift)."""
    rng = np.random.default_rng(0)
    odd = rng.integers(0, 2**62, BANDS * ROWS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = np.zeros((len(runs), BANDS * ROWS), dtype=np.uint64)
    for place, of_text in enumerate(runs):
        if len(of_text):
            hashes[place] = ((of_text[:, None] * odd) >> np.uint64(32)).min(axis=0)
    return hashes


def _resemblance(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> float:
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared)

"""Passages that do not compete with each other, and texts that are nearly the same.

Passages with equal title and text count as one. Labels go by id: an equal passage that they do not
name counts as wrong.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rerank.data.checks import has_text
from rerank.progress import progress
from rerank.types import Floats, Ints, Passage, RankedPassage


def distinct(passages: Sequence[Passage | RankedPassage]) -> tuple[Ints, Ints]:
    """The first of each group of equal passages (m,), rising, and the group of each passage (n,).

    As `np.unique`'s `return_index` and `return_inverse`. Passages without text are never equal.
    """
    number: dict[tuple[str, str] | int, int] = {}
    first, group = list[int](), list[int]()
    for i, passage in enumerate(passages):
        key = (passage.title, passage.text) if passage.text else i
        if key not in number:
            number[key] = len(first)
            first.append(i)
        group.append(number[key])
    return np.array(first, dtype=np.int64), np.array(group, dtype=np.int64)


def with_text(passages: Sequence[Passage]) -> Ints:
    """The positions of the passages that hold any text; the others cannot be right."""
    return np.flatnonzero([has_text(p.text) or has_text(p.title) for p in passages])


def ranks_without_equal(ranks: Ints, first: Ints, group: Ints) -> Ints:
    """The ranks (n,), from 1, if equal passages shared the best rank of their group: `first` (m,)
    and `group` (n,) are those of `distinct`.
    """
    best = np.full(len(first), ranks.max(initial=0))
    np.minimum.at(best, group, ranks)
    left_out = np.sort(ranks[ranks > best[group]])
    return (best - np.searchsorted(left_out, best))[group]


def highest_of_equal(scores: Floats, group: Ints) -> Floats:
    """The scores (n,), each the highest of its `group` (n,) of `distinct`; NaN without any."""
    highest = np.full(group.max(initial=-1) + 1, np.nan)
    if len(highest) == len(scores):  # all differ
        return scores
    np.fmax.at(highest, group, scores)
    return np.asarray(highest[group])


RUN = 4  # words per n-gram (run)
ALIKE = 0.7  # share of all runs of two texts that both contain, from which they are near duplicates

BANDS, ROWS = 16, 4  # of min-wise hashes: texts that share 70% of their runs are missed in 1%
BUCKET = 16  # texts of a bucket; the next ones go to buckets of `ROWS` more hashes,
DEPTH = 8  # so many times at most
AT_ONCE = 4096  # runs of a text that are hashed at once
COMPARED = 32  # texts that a text is compared with: those that share the most buckets with it


def near_duplicates(texts: Sequence[str], *, label: str | None = None) -> Iterator[tuple[int, int]]:
    """Yield pairs of positions in `texts` that connect near duplicates, directly or in a chain.

    Their resemblance (Broder 1997, "On the resemblance and containment of documents") is at least
    `ALIKE`. Texts without a word have no duplicates. `label` names a progress bar.

    Each text is compared with at most `COMPARED` others. Among thousands that share more than half
    of their runs, such as form letters, pairs near `ALIKE` may be missed. Full buckets divide by
    further hashes (Bawa, Condie and Ganesan 2005, "LSH forest").
    """
    runs = [_runs(text) for text in texts]
    hashes = _min_hashes(runs)
    buckets: dict[bytes, list[int]] = defaultdict(list)
    with progress(len(texts), label, unit="passage") as bar:
        for place, row in enumerate(hashes):
            bar.update()
            if not len(runs[place]):
                continue
            twice = row.tobytes() * 2
            met = [_met(buckets, twice, band) for band in range(BANDS)]
            shared = Counter(other for path in met for bucket in path for other in bucket)
            near = {
                other
                for other, _ in shared.most_common(COMPARED)
                if _resemblance(runs[other], runs[place]) >= ALIKE
            }
            yield from ((other, place) for other in sorted(near))
            for path in met:
                # the other duplicates of a text in the bucket are already connected to that one
                if len(path[-1]) < BUCKET and all(map(near.isdisjoint, path)):
                    path[-1].append(place)


def _met(buckets: dict[bytes, list[int]], hashes: bytes, band: int) -> list[list[int]]:
    """The buckets of a text in a band, the full ones first; it belongs into the last."""
    size = len(hashes) // (2 * BANDS)
    found: list[list[int]] = []
    while len(found) < DEPTH and (not found or len(found[-1]) >= BUCKET):
        end = (band + len(found) + 1) * size
        found.append(buckets[bytes([band]) + hashes[band * size : end]])
    return found


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
    hashes = np.full((len(runs), BANDS * ROWS), 2**32, dtype=np.uint64)
    for lowest, of_text in zip(hashes, runs, strict=True):
        for start in range(0, len(of_text), AT_ONCE):
            hashed = (of_text[start : start + AT_ONCE, None] * odd) >> np.uint64(32)
            np.minimum(lowest, hashed.min(axis=0), out=lowest)
    return hashes


def _resemblance(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> float:
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared)

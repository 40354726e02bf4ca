"""BM25 over a corpus: the scores of `rank_bm25.BM25Okapi`, compiled once to a sparse matrix.

Robertson & Zaragoza 2009, in rank_bm25's variant: token lists in, arrays of scores out.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rerank.errors import InputError, optional
from rerank.types import Floats, Ints

K1, B = 1.5, 0.75  # BM25Okapi's defaults: term saturation, weight of the length
EPSILON = 0.25  # of the mean idf: what a negative idf is raised to


@dataclass(frozen=True, slots=True)
class BM25:
    """Each (term, passage) weight, term-major: `weights[starts[t]:starts[t+1]]` are term t's."""

    terms: dict[str, int]
    term_idf: Floats  # (terms,)
    starts: Ints  # (terms + 1,)
    rows: NDArray[np.int32]  # passage rows, ascending within a term
    weights: Floats  # a query's score is their sum over its terms
    size: int  # passages

    @classmethod
    def build(cls, documents: Iterable[Sequence[str]]) -> BM25:
        """Compile the statistics of `BM25Okapi(documents)`, n >= 1; a document may be empty."""
        with optional():
            from scipy.sparse import csr_array

        terms: dict[str, int] = {}
        ids, counts, ends, lengths = array("i"), array("i"), array("q", [0]), array("q")
        for document in documents:
            lengths.append(len(document))
            for word, count in Counter(document).items():
                ids.append(terms.setdefault(word, len(terms)))
                counts.append(count)
            ends.append(len(ids))
        size = len(lengths)
        if not terms:  # of a word in no query: the mean length should not be 0
            terms, ids, counts = {"\0": 0}, array("i", [0]), array("i", [1])
            lengths[0], ends = 1, array("q", [0, *([1] * size)])
        flat = (np.array(counts), np.array(ids), np.array(ends))
        held = csr_array(flat, shape=(size, len(terms))).tocsc()
        holders = np.diff(held.indptr)
        raw = [math.log(size - n + 0.5) - math.log(n + 0.5) for n in holders.tolist()]
        floor = EPSILON * (np.cumsum(raw)[-1] / len(raw))
        idf = np.array([value if value >= 0 else floor for value in raw])
        norm = K1 * (1 - B + B * np.array(lengths, dtype=np.float64) / (sum(lengths) / size))
        weights = held.data * (K1 + 1) / (held.data + norm[held.indices])
        weights *= np.repeat(idf, holders)
        starts = held.indptr.astype(np.int64)
        return cls(terms, idf, starts, held.indices.astype(np.int32), weights, size)

    def scores(self, query: Sequence[str]) -> Floats:
        """The score of every passage, shape (size,); a repeated query word counts each time."""
        total = np.zeros(self.size)
        for word in query:
            term = self.terms.get(word)
            if term is not None:
                postings = slice(self.starts[term], self.starts[term + 1])
                np.add.at(total, self.rows[postings], self.weights[postings])
        return total

    def idf(self, word: str) -> float:
        """The word's idf; a word that is in no passage has the highest idf."""
        term = self.terms.get(word)
        return float(self.term_idf.max(initial=1.0) if term is None else self.term_idf[term])

    def save(self, folder: Path) -> None:
        """Write `terms.txt` (one term per line) and one file per array, to be memory-mapped."""
        (folder / "terms.txt").write_text("\n".join(self.terms), encoding="utf-8")
        for name in ("rows", "weights"):
            np.save(folder / f"bm25_{name}.npy", getattr(self, name))
        size = np.array(self.size)
        np.savez(folder / "bm25.npz", idf=self.term_idf, starts=self.starts, size=size)

    @classmethod
    def open(cls, folder: Path) -> BM25:
        """Read what `save` wrote; nothing is unpickled, and the large arrays stay on disk."""
        words = (folder / "terms.txt").read_text(encoding="utf-8").split("\n")
        large = {
            name: np.load(folder / f"bm25_{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("rows", "weights")
        }
        with np.load(folder / "bm25.npz", allow_pickle=False) as arrays:
            if any(member.compress_type for member in arrays.zip.infolist()):
                raise InputError(f"{folder}: bm25.npz is compressed; expected plain arrays")
            return cls(
                {w: i for i, w in enumerate(words)},
                term_idf=arrays["idf"],
                starts=arrays["starts"],
                size=int(arrays["size"]),
                **large,
            )


def score_texts(
    query: Sequence[str], counts: Mapping[str, Ints], lengths: Ints, idf: Callable[[str], float]
) -> Floats:
    """`BM25Okapi`'s scores of n texts outside any index, shape (n,), with an idf from elsewhere.

    `counts` (n,) says how often each word of the query is in each text, if it is in any; `lengths`
    (n,) how many words a text has; the mean length is that of these texts.
    """
    mean = float(lengths.mean()) if len(lengths) else 1.0
    norm = K1 * (1 - B + B * lengths / max(1.0, mean))
    added = {w: idf(w) * held * (K1 + 1) / (held + norm) for w, held in counts.items()}
    total = np.zeros(len(lengths))
    for word in query:  # in its order, on which the last bits depend
        if word in added:
            total += added[word]
    return total

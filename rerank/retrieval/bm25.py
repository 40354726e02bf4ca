"""BM25 over a corpus: the scores of `rank_bm25.BM25Okapi`, compiled once to a sparse matrix.

Robertson & Zaragoza 2009, in rank_bm25's variant (a negative idf is raised to a quarter of the
mean idf). Knows nothing of passages: token lists in, arrays of scores out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerank.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class BM25:
    """Each (term, passage) weight, term-major: `data[indptr[t]:indptr[t+1]]` belong to term t."""

    terms: dict[str, int]
    idf: Floats  # (terms,)
    indptr: Ints  # (terms + 1,)
    indices: Ints  # passage rows
    data: Floats  # weights; a query's score is their sum over its terms
    size: int  # passages

    @classmethod
    def build(cls, documents: Sequence[Sequence[str]]) -> BM25:
        """Compile the statistics of `BM25Okapi(documents)`; documents may be empty lists."""
        from rank_bm25 import BM25Okapi

        filled = [list(d) for d in documents]
        if not any(filled):
            filled = [["\x00"], *filled[1:]]  # BM25Okapi divides by the mean length
        okapi = BM25Okapi(filled)
        terms = {term: i for i, term in enumerate(okapi.idf)}
        length = np.asarray(okapi.doc_len, dtype=np.float64)
        norm = okapi.k1 * (1 - okapi.b + okapi.b * length / okapi.avgdl)
        rows = np.repeat(np.arange(len(filled)), [len(f) for f in okapi.doc_freqs])
        which = np.array([terms[t] for f in okapi.doc_freqs for t in f], dtype=np.int64)
        count = np.array([n for f in okapi.doc_freqs for n in f.values()], dtype=np.float64)
        idf = np.array(list(okapi.idf.values()), dtype=np.float64)
        weights = idf[which] * (count * (okapi.k1 + 1) / (count + norm[rows]))
        order = np.argsort(which, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=len(terms)))])
        return cls(terms, idf, indptr, rows[order], weights[order], len(filled))

    def scores(self, query: Sequence[str]) -> Floats:
        """The score of every passage, shape (size,); a repeated query word counts each time."""
        total = np.zeros(self.size)
        for word in query:
            term = self.terms.get(word)
            if term is not None:
                part = slice(self.indptr[term], self.indptr[term + 1])
                total[self.indices[part]] += self.data[part]
        return total

    def weight(self, word: str) -> float:
        """The word's idf; a word that no passage holds weighs as much as the rarest."""
        term = self.terms.get(word)
        return float(self.idf[term]) if term is not None else float(self.idf.max(initial=1.0))

    def save(self, folder: Path) -> None:
        """Write `bm25.npz` and `terms.txt` (one term a line)."""
        (folder / "terms.txt").write_text("\n".join(self.terms), encoding="utf-8")
        np.savez(
            folder / "bm25.npz",
            idf=self.idf,
            indptr=self.indptr,
            indices=self.indices,
            data=self.data,
            size=np.array(self.size),
        )

    @classmethod
    def open(cls, folder: Path) -> BM25:
        """Read what `save` wrote; nothing is unpickled."""
        words = (folder / "terms.txt").read_text(encoding="utf-8").split("\n")
        with np.load(folder / "bm25.npz", allow_pickle=False) as kept:
            arrays = {name: kept[name] for name in ("idf", "indptr", "indices", "data")}
            return cls({w: i for i, w in enumerate(words)}, size=int(kept["size"]), **arrays)

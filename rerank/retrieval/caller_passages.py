"""Passages from the caller, ranked by the two stages as the index ranks its own.

The stages rank only these passages: from the index they use only the idf of its words, so the
passages may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rerank.data.equal_passages import distinct
from rerank.data.words import Lexicon, passage_words, words
from rerank.retrieval.bm25 import score_texts
from rerank.retrieval.fusion import ranks, reciprocal_rank_fusion, top
from rerank.types import FirstStage, Floats, Passage


def rank_passages(
    query: str,
    passages: Sequence[Passage],
    cosines: Floats,
    lexicon: Lexicon,
    *,
    rrf_k: int,
) -> FirstStage:
    """What the stages say of the passages, best fused first; `rows` are positions in `passages`.

    `cosines` (n,) are those of query and passage. BM25 finds only passages that share a word with
    the query; a passage that it does not find ranks behind all others. Ties are broken by the text,
    so the order of the input does not matter. Equal passages are ranked as one; each of them has
    its numbers.
    """
    first, group = distinct(passages)
    different = [passages[i] for i in first]
    asked = words(query, language=lexicon.language)
    found = [passage_words(p, lexicon.language) for p in different]
    counts = {word: np.array([f.count(word) for f in found]) for word in asked}
    lexical = score_texts(asked, counts, np.array([f.length for f in found]), lexicon.idf)
    stage = _rank([p.full_text for p in different], lexical, cosines[first], rrf_k=rrf_k)
    members = [np.flatnonzero(group == g) for g in stage.rows]
    ranked = stage.take(np.repeat(np.arange(len(members)), [len(rows) for rows in members]))
    return replace(ranked, rows=np.concatenate([stage.rows[:0], *members]))


def _rank(texts: Sequence[str], lexical: Floats, cosines: Floats, *, rrf_k: int) -> FirstStage:
    """What the stages say of texts that all differ, given their scores (n,) by both."""
    n = len(texts)
    by_text = np.array(sorted(range(n), key=lambda i: texts[i]), dtype=np.int64)
    matching = by_text[lexical[by_text] > 0]
    lists = [matching[top(lexical[matching], n)], by_text[top(cosines[by_text], n)]]
    rows, scores = reciprocal_rank_fusion(lists, k=rrf_k)
    place = np.argsort(by_text)  # of each passage in the order of their texts
    best = np.lexsort((place[rows], -scores))
    rows = rows[best]
    bm25_rank, dense_rank = (ranks(f, rows, missing=n + 1) for f in lists)
    return FirstStage(
        rows=rows,
        bm25=lexical[rows],
        dense=cosines[rows],
        bm25_rank=bm25_rank,
        dense_rank=dense_rank,
        fused=scores[best],
    )

"""The interface to another search system: the best passages of each of its searches, with scores.

Its results are a list with scores (`rerank.types.ListKind`), to which our cross-encoder adds its
own: a system gives no score of what a search did not return, and no weight of a word.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rerank.filters import Where
from rerank.retrieval.dense import Vectors
from rerank.retrieval.fusion import reciprocal_rank_fusion, top
from rerank.types import Passage, Query

KEYWORD, VECTOR = "keyword", "vector"  # the searches that a system may have


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned; a higher score is better."""

    passage: Passage
    score: float


class Collection(Protocol):
    """Which collection of which system, and its fields; its text names it in messages."""

    id: str  # the field of the ids
    vector: str  # the field of vector search; "": none

    @property
    def stages(self) -> tuple[str, ...]:
        """The searches to run, in this order."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, for the manifest of a model."""


class SearchSystem(Protocol):
    """A collection of another system, connected at the first call. Safe to call from many threads.

    Every call raises a RetrieverError if the system does not answer, and an InputError if it lacks
    the collection or a field.
    """

    @property
    def settings(self) -> Collection:
        """What it was opened with."""

    def keyword(self, query: str, count: int, where: Where | None = None) -> Sequence[Hit]:
        """The `count` best passages by the words of the query, best first, of those that fit
        `where`, whose keys are fields of the collection: filtered before ranking.
        """

    def vector(self, vector: Vectors, count: int, where: Where | None = None) -> Sequence[Hit]:
        """The `count` nearest passages to a unit vector (d,), nearest first; `where` likewise."""

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """At most as many passages as ids, of these ids; see `passages_by_id`."""


def query_with_results(
    system: SearchSystem,
    query: Query,
    vector: Vectors,
    *,
    pool: int,
    count: int,
    rrf_k: int,
    without: Set[str] = frozenset(),
) -> Query:
    """The query with the `count` best fused passages of the `pool` best of each search.

    Their scores are stored by search, NaN if a search did not return the passage. Passages in
    `without` are ignored.
    """
    asked = pool + len(without)
    given = (asked, query.where) if query.where else (asked,)
    found: dict[str, Sequence[Hit]] = {}
    for stage in system.settings.stages:
        vectors = stage == VECTOR
        hits = system.vector(vector, *given) if vectors else system.keyword(query.text, *given)
        once = {hit.passage.doc_id: hit for hit in reversed(hits)}  # the best hit of each id
        best = sorted(once.values(), key=lambda h: (-h.score, h.passage.doc_id))
        found[stage] = [h for h in best if h.passage.doc_id not in without][:pool]
    passages = {h.passage.doc_id: h.passage for hits in found.values() for h in hits}
    ids = sorted(passages)
    row = {doc_id: i for i, doc_id in enumerate(ids)}
    lists = {
        stage: np.array([row[h.passage.doc_id] for h in hits], dtype=np.int64)
        for stage, hits in found.items()
    }
    rows, fused = reciprocal_rank_fusion([*lists.values()], k=rrf_k)
    kept = rows[top(fused, count)]
    scores = {}
    for stage, hits in found.items():
        of_stage = np.full(len(ids), np.nan)
        of_stage[lists[stage]] = [hit.score for hit in hits]
        scores[stage] = of_stage[kept]
    kept_passages = tuple(passages[ids[i]] for i in kept)
    return replace(query, passages=kept_passages, scores=scores, where=None)


def passages_by_id(system: SearchSystem, ids: Sequence[str]) -> dict[str, Passage]:
    """The passages with these ids that the system holds, by id; a few hundred ids per call. Those
    of one id crowd out others, so missing ones are asked for until none comes.
    """
    found: dict[str, Passage] = {}
    missing = list(ids)
    while missing and (answer := system.passages(missing)):
        found |= {p.doc_id: p for p in answer}
        left = [i for i in missing if i not in found]
        missing = left if len(left) < len(missing) else []
    return found

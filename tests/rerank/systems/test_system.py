"""`rerank.systems.settings`: what several searches bring, as one list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.assessment.sources.other_system import Hit, query_with_results
from rerank.retrieval.dense import Vectors
from rerank.systems.settings import RetrieverSettings
from rerank.types import Passage, Query

SETTINGS = RetrieverSettings("lancedb", "u", "c", title="t", keyword=("text",), vector="v")


def hits(**scores: float) -> list[Hit]:
    return [Hit(Passage(i, "", i), score) for i, score in scores.items()]


class TwoLists:
    """A system that brings the same lists for every query."""

    settings = SETTINGS

    def keyword(self, query: str, count: int) -> Sequence[Hit]:
        """By a score that may be anything."""
        return hits(a=3.0, b=2.0, c=1.0)[:count]

    def vector(self, vector: Vectors, count: int) -> Sequence[Hit]:
        """By cosines."""
        return hits(c=0.9, d=0.8, a=0.7)[:count]

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """All of them."""
        return [Passage(i, "", i) for i in ids]


def provided(**options: object) -> dict[str, dict[str, float | None]]:
    vector = np.ones(2, dtype=np.float32)
    given = {"pool": 3, "count": 10, "rrf_k": 60, **options}
    query = query_with_results(TwoLists(), Query("q"), vector, **given)  # type: ignore[arg-type]
    return {p.doc_id: query.scores_of(i) for i, p in enumerate(query.passages or ())}


def test_both_searches_are_one_list() -> None:
    """Best fused first, ties by id; None where a search did not bring the passage."""
    found = provided()
    assert list(found) == ["a", "c", "b", "d"]
    assert found["a"] == {"keyword": 3.0, "vector": 0.7}
    assert found["b"] == {"keyword": 2.0, "vector": None}
    assert list(provided(count=1)) == ["a"]


def test_passages_that_count_as_gone() -> None:
    """More is asked for, and the list is that of a collection without them."""
    assert list(provided(pool=2, without={"a"})) == ["c", "b", "d"]


def test_documents_that_are_no_passages() -> None:
    """Without an id or a text they are left out; numbers are ids, lists of texts are one text."""
    kept = SETTINGS.passage({"id": 7, "t": None, "text": ["one", "two"]})
    assert kept == Passage("7", "", "one\ntwo")
    assert SETTINGS.passage({"id": "x", "text": " "}) is None
    assert SETTINGS.passage({"text": "x"}) is None
    row = {"id": "a", "text": "x"}
    assert [h.score for h in SETTINGS.hits([(row, 1.0), (row, float("nan"))])] == [1.0]

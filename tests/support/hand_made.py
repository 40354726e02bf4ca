"""Rankings and scored candidates whose every number is given; what is left out is constant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerank.assessment.passage_features import CROSS_ENCODER, PASSAGE_FEATURES
from rerank.data.labels import Labelled
from rerank.types import Candidates, FirstStage, Passage, Query, Ranking, Scored


@dataclass
class EnglishWords:
    """English words, weighed by a function."""

    idf: Callable[[str], float]
    language: str = "english"


def make_ranking(
    *,
    query: str = "fill missing values",
    texts: Sequence[str] = (),
    titles: Sequence[str] | None = None,
    metadata: Sequence[Mapping[str, Any]] | None = None,
    logits: Sequence[float] | None = None,
    scored: Sequence[bool] | None = None,
    truncated: Sequence[bool] | None = None,
    bm25: Sequence[float] | None = None,
    dense: Sequence[float] | None = None,
    bm25_rank: Sequence[int] | None = None,
    dense_rank: Sequence[int] | None = None,
    fused: Sequence[float] | None = None,
    score: Sequence[float] | None = None,
    features: Mapping[str, Sequence[float]] | None = None,
) -> Ranking:
    """A ranking of passages d0, d1, ...; without texts an empty one. `features` are by name.

    Without titles, each passage gets another one, so that passages with one text differ.
    """
    n = len(texts)

    def numbers(values: Sequence[Any] | None, default: Any, kind: type = np.float64) -> Any:
        return np.array([default] * n if values is None else values, dtype=kind)

    places = range(1, n + 1)
    columns = [numbers((features or {}).get(name), 0.5) for name in PASSAGE_FEATURES]
    table = np.column_stack(columns)
    stage = FirstStage(
        rows=np.arange(n),
        bm25=numbers(bm25, 0.5),
        dense=numbers(dense, 0.5),
        bm25_rank=numbers(places if bm25_rank is None else bm25_rank, 0, np.int64),
        dense_rank=numbers(places if dense_rank is None else dense_rank, 0, np.int64),
        fused=numbers(fused, 0.5),
    )
    titles = titles or [f"title {i}" for i in range(n)]
    passages = tuple(
        Passage(f"d{i}", title, text, metadata[i] if metadata else {})
        for i, (title, text) in enumerate(zip(titles, texts, strict=True))
    )
    return Ranking(
        Candidates(Query(query, "q"), passages, stage, table[:, len(CROSS_ENCODER) :]),
        logits=numbers(logits, 0.0),
        scored=numbers(scored, True, np.bool_),
        truncated=numbers(truncated, False, np.bool_),
        features=table,
        score=numbers(score, 0.5),
    )


def make_scored(*, logits: Sequence[float] = (), **numbers: Any) -> Scored:
    """Candidates of which the first have these logits; `numbers` are those of `make_ranking`."""
    ranking = make_ranking(**numbers)
    none_cut = np.zeros(len(logits), dtype=np.bool_)
    return Scored(ranking.candidates, ranking.score, np.array(logits, float), none_cut)


def labelled(*pairs: tuple[Any, Sequence[str]]) -> Labelled[Any]:
    """Items, each with the ids of its right passages and a group of its own."""
    return Labelled(
        [item for item, _ in pairs],
        np.array([f"group {i}" for i in range(len(pairs))]),
        [dict.fromkeys(right, 1.0) for _, right in pairs],
    )

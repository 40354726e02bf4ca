"""Labels, joined once with what is ranked: arrays to fit on and to measure with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rerank.types import Candidates, Query, Ranking, Scored

Labels = NDArray[np.int64]
Grades = Mapping[str, float]  # passage id -> grade above 0; empty if nothing answers the query

Item = TypeVar("Item", Query, Candidates, Scored, Ranking)
Made = TypeVar("Made", Query, Candidates, Scored, Ranking)


@dataclass(frozen=True, slots=True)
class Labelled(Generic[Item]):
    """Labelled queries, or a stage's output for them: one item, group and grades per query."""

    items: Sequence[Item]
    groups: NDArray[np.str_]  # (n,) queries of one group stay together in folds and resamples
    grades: Sequence[Grades]

    def __len__(self) -> int:
        """Count of queries."""
        return len(self.items)

    def with_items(self, items: Sequence[Made]) -> Labelled[Made]:
        """The labels of these queries with the next stage's output: one item per query."""
        return Labelled(items, self.groups, self.grades)

    def where(self, chosen: NDArray[np.bool_]) -> Labelled[Item]:
        """The queries at which `chosen` (n,) is True."""
        rows = np.flatnonzero(chosen).tolist()
        return replace(
            self,
            items=[self.items[i] for i in rows],
            groups=self.groups[rows],
            grades=[self.grades[i] for i in rows],
        )


def hits(labelled: Labelled[Ranking], *, depth: int = 1) -> NDArray[np.int64]:
    """1 if one of the first k passages is right, for k = 1 to `depth`, shape (n, depth)."""
    table = np.zeros((len(labelled), depth), dtype=np.int64)
    for row, (ranking, grades) in enumerate(zip(labelled.items, labelled.grades, strict=True)):
        for k, doc_id in enumerate(ranking.doc_ids[:depth]):
            if doc_id in grades:
                table[row, k:] = 1
                break
    return table


def passage_labels(labelled: Labelled[Any]) -> list[Labels]:
    """1 if a passage is right; one array per query, in the order of its passages."""
    items = (i.candidates if isinstance(i, Scored) else i for i in labelled.items)
    return [
        np.array([p.doc_id in grades for p in item.passages], dtype=np.int64)
        for item, grades in zip(items, labelled.grades, strict=True)
    ]

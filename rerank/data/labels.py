"""Labels joined with what is ranked, as arrays; and how many queries each drawn one represents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration.prediction_powered import Judged
from rerank.errors import InputError
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
        return len(self.items)

    def with_items(self, items: Sequence[Made]) -> Labelled[Made]:
        """The labels of these queries with the next stage's output: one item per query."""
        return Labelled(items, self.groups, self.grades)

    def where(self, chosen: NDArray[np.bool_]) -> Labelled[Item]:
        """The queries at which `chosen` (n,) is True."""
        rows = np.flatnonzero(chosen).tolist()
        items, grades = [self.items[i] for i in rows], [self.grades[i] for i in rows]
        return Labelled(items, self.groups[rows], grades)


def hits(labelled: Labelled[Ranking], *, depth: int = 1) -> NDArray[np.int64]:
    """1 if one of the first k passages is right, for k = 1 to `depth`, shape (n, depth)."""
    table = np.zeros((len(labelled), depth), dtype=np.int64)
    for row, (ranking, grades) in enumerate(zip(labelled.items, labelled.grades, strict=True)):
        first = next((k for k, d in enumerate(ranking.doc_ids[:depth]) if d in grades), depth)
        table[row, first:] = 1
    return table


def passage_labels(labelled: Labelled[Any]) -> list[Labels]:
    """1 if a passage is right; one array per query, in the order of its passages."""
    items = (i.candidates if isinstance(i, Scored) else i for i in labelled.items)
    return [
        np.array([p.doc_id in grades for p in item.passages], dtype=np.int64)
        for item, grades in zip(items, labelled.grades, strict=True)
    ]


WEIGHT = "weight"  # metadata of a query
DRAWN_BY = "drawn_by"  # metadata beside it: the version of the model whose confidences decided
ACCEPTED_FROM = "accepted_from"  # beside that: one of a random sample of those from this confidence
CHOSEN = "chosen"  # metadata of a query: true if it was drawn by its confidence, without a weight
JUDGED = "judged"  # beside it: the judge (`by`), what it says, the `stratum`, and its rows (`of`)
LARGEST = 1e9


def drawn_at_random(queries: Iterable[Query]) -> bool:
    """Whether no query has a weight or was chosen: only then labels of them may certify."""
    return not any(
        {WEIGHT, ACCEPTED_FROM} & q.metadata.keys() or q.metadata.get(CHOSEN) is True
        for q in queries
    )


def drawn_by(queries: Iterable[Query], version: str) -> bool:
    """Whether the model of this version drew all of the queries by its confidences."""
    return all(q.metadata.get(DRAWN_BY) == version for q in queries)


def judged_of(queries: Sequence[Query]) -> Judged | None:
    """The strata that queries were drawn from by what a judge says; None if not all of them were.

    Raises:
        InputError: metadata that no draw writes, or several judges.
    """
    drawn = [query.metadata[JUDGED] for query in queries if JUDGED in query.metadata]
    if not drawn or len(drawn) < len(queries):
        return None
    try:
        ((by, of),) = {(str(d["by"]), tuple(d["of"])) for d in drawn}
        found = Judged(by, tuple(int(d["stratum"]) for d in drawn), tuple(map(int, of)))
        for stratum in found.stratum:
            if stratum < 0 or found.stratum.count(stratum) > found.rows[stratum]:
                raise ValueError("more labels than questions")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise InputError(
            f"metadata {JUDGED!r} should be of one draw, as `rerank label --judge` writes it"
        ) from None
    return found


def weights_of(queries: Sequence[Query]) -> Mapping[str, float]:
    """The weights of queries by id, if they have any."""
    if all(query.metadata.get(WEIGHT) is None for query in queries):
        return {}
    for query in queries:
        weight = query.metadata.get(WEIGHT)
        if not isinstance(weight, (int, float)) or weight is True or not 0 < weight <= LARGEST:
            whose = f"query {query.query_id!r:.80}: " if query.query_id else ""
            other = ", as for the other queries" if weight is None else ""
            raise InputError(
                f"{whose}metadata {WEIGHT!r} should be a number above 0 and up to {LARGEST:g}"
                f"{other}, got {weight!r:.80}"
            )
    return {query.query_id: float(query.metadata[WEIGHT]) for query in queries}

"""Weights of queries in a sample drawn for labelling: how many queries each one represents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rerank.errors import InputError
from rerank.types import Query

WEIGHT = "weight"  # metadata of a query
DRAWN_BY = "drawn_by"  # metadata beside it: the version of the model whose confidences decided
CHOSEN = "chosen"  # metadata of a query: true if it was drawn by its confidence, without a weight
LARGEST = 1e9


def drawn_at_random(queries: Iterable[Query]) -> bool:
    """Whether no query has a weight or was chosen: only then labels of them may certify."""
    return not any(WEIGHT in q.metadata or q.metadata.get(CHOSEN) is True for q in queries)


def drawn_by(queries: Iterable[Query], version: str) -> bool:
    """Whether the model of this version drew all of the queries by its confidences."""
    return all(q.metadata.get(DRAWN_BY) == version for q in queries)


def weights_of(queries: Sequence[Query]) -> Mapping[str, float]:
    """The weights of queries by id, if they have any.

    Raises:
        InputError: some have none, or one is not a number in (0, `LARGEST`].
    """
    if all(query.metadata.get(WEIGHT) is None for query in queries):
        return {}
    for query in queries:
        weight = query.metadata.get(WEIGHT)
        if isinstance(weight, (int, float)) and weight is not True and 0 < weight <= LARGEST:
            continue
        whose = f"query {query.query_id!r:.80}: " if query.query_id else ""
        other = ", as for the other queries" if weight is None else ""
        raise InputError(
            f"{whose}metadata {WEIGHT!r} should be a number above 0 and up to {LARGEST:g}{other}, "
            f"got {weight!r:.80}"
        )
    return {query.query_id: float(query.metadata[WEIGHT]) for query in queries}

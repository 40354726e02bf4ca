"""Weights of queries in a sample drawn for labelling: how many queries each one represents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rerank.errors import InputError
from rerank.types import Query

WEIGHT = "weight"  # metadata of a query
LARGEST = 1e9


def weights_of(queries: Sequence[Query]) -> Mapping[str, float]:
    """The weights of queries by id, if they have any.

    Raises:
        InputError: some have none, or one is not a number in (0, `LARGEST`].
    """
    weights: list[tuple[str, Any]] = [(q.query_id, q.metadata.get(WEIGHT)) for q in queries]
    if all(weight is None for _, weight in weights):
        return {}
    for query_id, weight in weights:
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not 0 < weight <= LARGEST:
            raise InputError(
                f"query {query_id!r:.80}: metadata {WEIGHT!r} should be a number above 0 and up to "
                f"{LARGEST:g}, as for the other queries, got {weight!r:.80}"
            )
    return {query_id: float(weight) for query_id, weight in weights}

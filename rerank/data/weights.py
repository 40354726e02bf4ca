"""Weights of queries in a sample drawn for labelling: how many queries each one represents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rerank.errors import InputError
from rerank.types import Query

WEIGHT = "weight"  # metadata of a query


def weights_of(queries: Sequence[Query]) -> Mapping[str, float]:
    """The weights of queries by id, if they have any.

    Raises:
        InputError: some have none, or one is not a number above 0.
    """
    weights: list[tuple[str, Any]] = [(q.query_id, q.metadata.get(WEIGHT)) for q in queries]
    if all(weight is None for _, weight in weights):
        return {}
    for query_id, weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
            raise InputError(
                f"query {query_id!r:.80}: metadata {WEIGHT!r} should be a number above 0, as for "
                f"the other queries, got {weight!r:.80}"
            )
    return {query_id: float(weight) for query_id, weight in weights}

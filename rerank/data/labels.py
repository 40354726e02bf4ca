"""What the labels say of rankings: arrays to fit on and to measure with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rerank.data.labelled_set import LabelledSet
from rerank.types import Ranking

Labels = NDArray[np.int64]


def hits(rankings: Sequence[Ranking], labelled: LabelledSet, *, k: int = 1) -> Labels:
    """1 where one of the first k passages is right, shape (n,)."""
    return np.array(
        [int(bool(labelled.relevant(r.query.query_id) & set(r.doc_ids[:k]))) for r in rankings],
        dtype=np.int64,
    )


def passage_labels(ranking: Ranking, labelled: LabelledSet) -> Labels:
    """1 where a passage of the ranking is right, shape (n,)."""
    right = labelled.relevant(ranking.query.query_id)
    return np.array([d in right for d in ranking.doc_ids], dtype=np.int64)


def groups_of(rankings: Sequence[Ranking], labelled: LabelledSet) -> NDArray[np.str_]:
    """The group of each query, shape (n,)."""
    return np.array([labelled.group(r.query.query_id) for r in rankings])


def grades_of(rankings: Sequence[Ranking], labelled: LabelledSet) -> list[Mapping[str, float]]:
    """The positive grades by passage id of each query; empty where nothing answers it."""
    return [labelled.qrels.get(r.query.query_id, {}) for r in rankings]

"""Have the questions changed? New queries against the features that a model was fitted on."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.drift import Drift, alarm
from rerank.assessor import CalibratedReranker
from rerank.features import FEATURES, feature_matrix
from rerank.pipeline import Pipeline, order
from rerank.types import InputError, Query


def drift(
    model: CalibratedReranker,
    queries: Sequence[Query],
    *,
    pipeline: Pipeline | None = None,
    groups: Sequence[str] | None = None,
    level: float = 0.01,
) -> Drift:
    """Which features of the queries' rankings have moved, and whether that is an alarm.

    No label is asked for. Without any move an alarm comes with a chance of at most `level`. Of
    `groups` (n,), rephrasings of one question, each tells little new; `pipeline` is that of another
    corpus than the model's. Queries that bring nothing back have no features and are left out.

    Raises:
        InputError: no query that brings back a passage, features of another version, or a level
            out of (0, 1).
    """
    if not 0 < level < 1:
        raise InputError(f"the level is a chance between 0 and 1, got {level:g}; 0.01 is usual")
    found = (pipeline or model.pipeline).rank(
        queries, model.calibrators.reading, label="reranking queries"
    )
    kept = [i for i, r in enumerate(found) if len(r)]
    if not kept:
        raise InputError("none of the queries brought back a passage; there is nothing to compare")
    if model.sketch.names != tuple(FEATURES):
        raise InputError(f"{model.folder}: its sketch is of other features; calibrate it again")
    learned, rank_by = model.calibrators, model.pipeline.config.rank_by
    ordered = [order(found[i], learned.relevance, rank_by=rank_by) for i in kept]
    labels = None if groups is None else [groups[i] for i in kept]
    return alarm(model.sketch, feature_matrix(ordered), level=level, groups=labels)

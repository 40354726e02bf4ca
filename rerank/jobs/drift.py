"""Have the questions changed? Compare new queries with the features that a model was fitted on."""

from __future__ import annotations

from collections.abc import Sequence

from calibration.monitoring.drift import Drift, alarm
from rerank.assessment.model import CalibratedReranker, as_queries
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.predictions import predict
from rerank.data.checks import query_hash
from rerank.data.labelled_set import given_group, group_label
from rerank.data.labels import Labelled
from rerank.errors import InputError
from rerank.types import Query, metadata_name


def detect_drift(
    model: CalibratedReranker,
    queries: Sequence[Query | str] | Labelled[Query],
    *,
    pipeline: Pipeline | None = None,
    level: float = 0.01,
) -> Drift:
    """Which features of the queries' rankings have shifted, and whether that is an alarm.

    No labels are needed. Without any shift, the chance of an alarm is at most `level`. Queries of
    one group, and queries with the same text, are not independent. A group is named by the metadata
    that the model's labelled queries were grouped by (`--group-by`), else by `metadata.group`, or
    by the labelled set. `pipeline` searches another corpus than the model's. Queries without
    candidates have no features and are left out.

    Raises:
        InputError: no query has a candidate, the features are of another version, `level` is not in
            (0, 1), or a query is in another mode than those fitted on.
    """
    if not 0 < level < 1:
        raise InputError(f"the level is a chance between 0 and 1, got {level:g}; 0.01 is usual")
    maps, used = model.maps.main, pipeline or model.pipeline
    if model.sketch.names != tuple(maps.features.ranking):
        raise InputError(f"{model.folder}: its sketch is of other features; calibrate it again")
    if isinstance(queries, Labelled):
        to_compare, groups = list(queries.items), queries.groups.tolist()
    else:
        to_compare = as_queries(queries)
        groups = [given_group(q) or query_hash(q.text) for q in to_compare]
    if model.group_by:
        named = [metadata_name(q.metadata, model.group_by) for q in to_compare]
        groups = [group_label(n) if n else g for n, g in zip(named, groups, strict=True)]
    other = next((q for q in to_compare if model.mode_of(q) != model.maps.main_mode), None)
    if other is not None:
        raise InputError(
            f"the model was fitted on queries in {model.maps.main_mode} mode, so only these can be "
            f"compared with them; {other.text!r:.80} is in {model.mode_of(other)} mode"
        )
    scored = used.run(to_compare, maps.policy, label="scoring candidates")
    with_passages = [i for i, s in enumerate(scored) if len(s)]
    if not with_passages:
        raise InputError("no passage was found for any query, so there is nothing to compare")
    predicted = predict([scored[i] for i in with_passages], maps, used.config)
    return alarm(
        model.sketch, predicted.features, level=level, groups=[groups[i] for i in with_passages]
    )

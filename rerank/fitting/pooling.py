"""Maps pooled over many labelled sets: the usual fit with each set as a group, so that
cross-fitting leaves out whole sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, cycle, islice
from typing import Any

import numpy as np

from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.pipeline import ReadPolicy
from rerank.config import Config
from rerank.data.labels import Labelled
from rerank.errors import InputError
from rerank.fitting.certificates import refuse_certificates
from rerank.fitting.fit import fit
from rerank.fitting.passage_maps import fit_prior_map, limit_labelled
from rerank.fitting.scored_plan import ScoredPlan
from rerank.types import Scored

MIN_SETS = 4
LOW = 0.25  # quantile of the sets' cutoffs
NO_LABELS = (
    "No label is of this corpus: the confidence is not calibrated here. Label queries and run "
    "`rerank calibrate`."
)


def fit_pooled_maps(sets: Mapping[str, ScoredPlan], config: Config) -> FittedMaps:
    """Maps of one mode, fitted on the scored candidates of many sets, which have equal weight.

    Each set's candidates are scored down to its own cutoff; the pooled policy takes the lower
    quartile of these cutoffs. The maps certify nothing, of a set that they have not seen.
    """
    if len(sets) < MIN_SETS:
        raise InputError(f"expected at least {MIN_SETS} labelled sets to pool, got {len(sets)}")
    cutoffs = {name: planned.policy.cutoff for name, planned in sets.items()}
    limited = {n: limit_labelled(planned.to_fit, cutoffs[n]) for n, planned in sets.items()}
    scored = balance_sets(limited)
    prior = fit_prior_map(scored.with_items([s.candidates for s in scored.items]))
    folds = min(config.folds, len(sets))
    pooled_config = replace(config, calibrator="logistic", segment_by="", folds=folds)
    maps = fit(ScoredPlan(scored, scored, ReadPolicy(prior)), pooled_config).maps
    policy = ReadPolicy(prior, float(np.quantile(list(cutoffs.values()), LOW)))
    return replace(refuse_certificates(maps, NO_LABELS), policy=policy, calibrated=False)


def balance_sets(sets: Mapping[str, Labelled[Scored]]) -> Labelled[Scored]:
    """All queries of the sets, each a group; smaller sets repeat theirs, until all are as large."""
    largest = max(map(len, sets.values()))

    def repeated(parts: Sequence[Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(islice(cycle(values), largest) for values in parts))

    return Labelled(
        repeated([scored.items for scored in sets.values()]),
        np.repeat(np.array(list(sets)), largest),
        repeated([scored.grades for scored in sets.values()]),
    )

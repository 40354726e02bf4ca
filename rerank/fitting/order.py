"""Choose the order of the passages by the labels: the simplest one that is as good as the best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibration.arrays import group_codes
from calibration.effective_sample_size import grouped_standard_error
from rerank.assessment.ranking import reorder
from rerank.config import Config
from rerank.data.labels import hits
from rerank.fitting.passage_maps import cross_fit_rankings, read_labelled
from rerank.fitting.scored_plan import ScoredPlan

ORDERS = ("dense", "fused", "logit", "relevance")  # simple to complex


def choose_order(scored_plan: ScoredPlan, config: Config) -> str:
    """The simplest of `ORDERS` whose hit@1 is within one standard error of the best.

    The error is that of the difference, by query group. The order by relevance is that of maps that
    have not seen the query's group. Lists with scores have no cosine.
    """
    unordered = read_labelled(scored_plan.to_fit, scored_plan.policy.cutoff)
    pooled = scored_plan.pooled.score if scored_plan.pooled else None
    ordered = cross_fit_rankings(unordered, replace(config, rank_by="relevance"), pooled)
    groups = group_codes(ordered.groups, len(ordered))
    right = {
        name: hits(ordered.with_items([reorder(r, rank_by=name) for r in ordered.items]))[:, 0]
        for name in ORDERS
        if name != "dense" or not scored_plan.kind.stages
    }
    best = max(right, key=lambda name: right[name].mean())  # of equal ones the simpler
    for name, of_order in right.items():
        lost = (right[best] - of_order).astype(np.float64)
        if lost.mean() <= grouped_standard_error(lost, groups):
            return name
    return best

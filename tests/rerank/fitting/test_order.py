"""`--rank-by auto`: the simplest order whose top passage is right as often as the best one's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rerank.assessment.ranking import read, reorder
from rerank.config import Config
from rerank.fitting.scored_plan import ScoredPlan
from rerank.jobs.calibrate import choose_order


@pytest.mark.parametrize("best", ["dense", "fused", "logit"])
def test_the_order_that_is_always_right_is_chosen(
    searched: ScoredPlan, config: Config, best: str
) -> None:
    """The labels name its top passage; the others' differs too often for one standard error."""
    tops = [reorder(read(s), rank_by=best).doc_ids[0] for s in searched.to_fit.items]
    labelled = replace(searched.to_fit, grades=[{top: 1.0} for top in tops])
    assert choose_order(replace(searched, to_fit=labelled), config) == best

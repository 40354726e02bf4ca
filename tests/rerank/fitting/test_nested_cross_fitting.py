"""Fits and measurements in folds, on lists that come with their scores."""

from __future__ import annotations

import numpy as np
import pytest
from known_lists import STAGES, known_lists, write_lines

from rerank.assessment.pipeline import Pipeline
from rerank.assessment.sources.lists import ScoredLists
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet
from rerank.fitting.fit import fit, fit_folds
from rerank.fitting.plan import plan
from rerank.fitting.scored_plan import ScoredPlan, score_lists
from rerank.types import ListKind

CONFIG = Config()


@pytest.fixture(scope="module")
def four_groups(tmp_path_factory: pytest.TempPathFactory) -> ScoredPlan:
    """The fewest groups that a plan allows."""
    rows = known_lists(60)
    for k, row in enumerate(rows):
        row["metadata"] = {"group": f"g{k % 4}"}
    labelled = LabelledSet.read(write_lines(tmp_path_factory.mktemp("lists") / "l.jsonl", rows))
    planned = plan(labelled, trained_hashes=frozenset(), max_queries=None, seed=0)
    lists = ScoredLists(ListKind(STAGES, texts=False), CONFIG)
    return score_lists(Pipeline(lists, None), planned)


def test_four_groups_can_be_fitted_on_and_measured_in_folds(four_groups: ScoredPlan) -> None:
    """Each fold is measured by a fit on the other three groups; the model has a sketch."""
    lists = four_groups
    parts = fit_folds({"lists": lists}, CONFIG)["lists"]
    measured = [set(part.groups.tolist()) for part, _ in parts]
    assert [len(groups) for groups in measured] == [1, 1, 1, 1]
    assert len(set().union(*measured)) == 4
    for groups, (_, fitted) in zip(measured, parts, strict=True):
        assert not groups & set(fitted.groups.tolist())
    whole = fit(lists, CONFIG)
    assert whole.sketch.rows == 60
    assert np.isfinite(whole.features).all()

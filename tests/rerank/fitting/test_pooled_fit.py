"""Maps pooled over sets: each set weighs alike, and labels are fitted around them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rerank.assessment.fitted_maps import FittedMaps, PooledMaps
from rerank.assessment.predictions import predict, to_assessments
from rerank.config import Config
from rerank.errors import InputError
from rerank.fitting.fit import fit
from rerank.fitting.scored_plan import ScoredPlan
from rerank.jobs.pool import balance_sets, fit_pooled_maps
from rerank.types import Mode


@pytest.fixture(scope="module")
def sets(searched: ScoredPlan) -> dict[str, ScoredPlan]:
    """The queries to fit on as if they were of five sets."""
    place = np.unique(searched.to_fit.groups, return_inverse=True)[1] % 5
    return {f"set {k}": searched.where(place == k) for k in range(5)}


@pytest.fixture(scope="module")
def pooled(sets: dict[str, ScoredPlan], config: Config) -> FittedMaps:
    """The maps of four of them."""
    return fit_pooled_maps({name: sets[name] for name in list(sets)[:4]}, config)


def test_every_set_gives_as_many_queries(sets: dict[str, ScoredPlan]) -> None:
    """A smaller set's queries come again; a set is one group, which cross-fitting leaves out."""
    together = balance_sets({name: planned.to_fit for name, planned in sets.items()})
    names, counts = np.unique(together.groups, return_counts=True)
    assert set(counts) == {max(len(planned.to_fit) for planned in sets.values())}
    assert list(names) == list(sets)


def test_pooled_maps_promise_nothing_and_decide_nothing(
    pooled: FittedMaps, searched: ScoredPlan, config: Config
) -> None:
    """No level above LOW, nothing accepted or certified, and the reason names the way out."""
    assert not pooled.calibrated
    assert pooled.certificate.threshold is None
    modes: list[Mode] = ["search"] * len(searched.to_report)
    found = to_assessments(predict(searched.to_report.items, pooled, config), pooled, config, modes)
    assert {one.level for one in found} <= {"LOW", "VERY_LOW"}
    assert {one.verdict for one in found} <= {"PARTIAL", "INSUFFICIENT"}
    assert not any(one.accepted or one.certified or one.calibrated for one in found)
    assert not any(one.to_dict()["calibrated"] for one in found)
    assert all("rerank calibrate" in one.reasons[0] for one in found)


def test_labels_are_fitted_around_the_pooled_maps(
    pooled: FittedMaps, sets: dict[str, ScoredPlan], config: Config
) -> None:
    """A few labels of another set move the maps, within their range, and claim no certainty."""
    own = sets["set 4"]
    fitted = fit(replace(own, pooled=pooled), config)
    assert fitted.maps.calibrated
    assert fitted.maps.score.scale == pooled.score.scale
    own_low, low = (np.array(m.confidence.first.low) for m in (fitted.maps, pooled))
    assert (own_low >= low).all()
    assert (own_low > low).any()
    assert "other labelled sets" in fitted.reason
    predicted = predict(own.to_fit.items, fitted.maps, config)
    assert predicted.sufficiency.max() <= fitted.maps.confidence.max_probability < 0.99


def test_pooled_maps_survive_the_file_and_name_what_differs(pooled: FittedMaps) -> None:
    kept = PooledMaps({"search": pooled, "rerank": pooled}, {"encoder": "a"}, [{"name": "x"}])
    assert PooledMaps.from_dict(kept.to_dict()).to_dict() == kept.to_dict()
    other = kept.to_dict()
    other["search"] = {**other["search"], "ranking_features": ["another"]}
    with pytest.raises(InputError, match="ranking_features differ"):
        PooledMaps.from_dict(other)

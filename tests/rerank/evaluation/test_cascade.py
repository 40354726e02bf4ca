"""Two models as a cascade, of a world whose gain is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from calibration.selection import grouped_folds
from rerank.errors import InputError
from rerank.evaluation.cascade import CHOOSING, SHARES, Cascade, Stage, measure_cascade

N = 2000


def stages(rng: np.random.Generator) -> tuple[Stage, Stage, np.ndarray]:
    """Both calibrated; the second is right more often by .4 where the first says .3 to .6."""
    first = rng.random(N)
    second = first + 0.4 * ((first >= 0.3) & (first < 0.6))
    draw = rng.random(N)
    right = [(draw < p).astype(np.int64) for p in (first, second)]
    return Stage(first, right[0]), Stage(second, right[1]), second - first


def measured(first: Stage, second: Stage, gains: np.ndarray, **changed: Any) -> Cascade:
    names = [f"q{i}" for i in range(N)]
    options = {"most": 0.4, "threshold": 0.7, "folds": 5, "seed": 0, **changed}
    return measure_cascade(first, second, gains, **{"groups": names, "units": names, **options})


def test_a_gain_in_a_band_is_found_for_the_price_of_the_band() -> None:
    """All of the gain of 12% for 30% of the queries, and the confidence stays calibrated."""
    first, second, gains = stages(np.random.default_rng(1))
    cascade = measured(first, second, gains, price=5.0)
    never, always = cascade.points[0], cascade.points[-1]
    assert (never.asked, always.asked) == (0, 1)
    assert [p.asked for p in cascade.points] == sorted(p.asked for p in cascade.points)
    assert (never.hit1, always.hit1) == (first.right.mean(), second.right.mean())
    assert cascade.gain.low < 0.12 < cascade.gain.high
    assert cascade.band.low == pytest.approx(0.3, abs=0.01)
    assert cascade.band.high == pytest.approx(0.6, abs=0.01)
    assert cascade.chosen.asked == pytest.approx(0.3, abs=0.04)
    assert cascade.worth_it
    assert cascade.kept > 0.97
    assert cascade.chosen.smece < 0.03
    assert cascade.certificate.threshold is not None
    assert cascade.certificate.accepted > (first.confidence >= 0.7).sum()
    assert cascade.sentences()[0].startswith("Worth it")
    rows = cascade.cells()
    assert len(rows) == len(SHARES) + 4
    costs = {row[0]: row[2] for row in rows}
    assert costs["never"] == "0.00"
    assert costs["always"] == "5.00"


def test_labels_choose_nothing() -> None:
    """Other labels, the same bands: so the labels can measure and certify what was chosen."""
    first, second, gains = stages(np.random.default_rng(2))
    other = [stage._replace(right=1 - stage.right) for stage in (first, second)]
    one, two = measured(first, second, gains), measured(*other, gains)
    assert one.band == two.band
    assert [p.asked for p in one.points] == [p.asked for p in two.points]
    assert two.certificate.threshold is None


def test_the_band_and_its_certificate_rest_on_different_queries() -> None:
    """Labels of the third that chose it certify nothing; gains of the others choose nothing."""
    first, second, gains = stages(np.random.default_rng(4))
    choosing = grouped_folds([f"q{i}" for i in range(N)], CHOOSING, random_state=0) == 0
    before = measured(first, second, gains)
    assert before.certificate.queries == N - choosing.sum()
    flipped = [
        one._replace(right=np.where(choosing, 1 - one.right, one.right)) for one in (first, second)
    ]
    after = measured(*flipped, gains)
    assert (after.band, after.certificate, after.held) == (
        before.band,
        before.certificate,
        before.held,
    )
    other = measured(first, second, np.where(choosing, gains, -gains))
    assert other.band == before.band
    low, high = before.band
    asked = (first.confidence >= low) & (first.confidence <= high)
    assert before.held.asked == asked[~choosing].mean()
    assert before.held.smece < 0.04


def test_what_is_not_worth_it_is_said() -> None:
    """No gain; a gain everywhere, of which a band keeps a part; too few groups for an interval."""
    first, second, gains = stages(np.random.default_rng(3))
    same = measured(first, first, np.zeros(N))
    assert not same.worth_it
    assert math.isnan(same.kept)
    assert same.to_dict()["band"] is None
    assert same.sentences()[0].startswith("Not worth it")
    assert same.chosen == same.points[0]._replace(name=same.chosen.name)
    little = measured(first, second, gains, most=0.05)
    assert little.gain.low > 0
    assert not little.worth_it
    assert "as a cascade" in little.sentences()[0]
    few = measured(first, second, gains, groups=[f"g{i % 3}" for i in range(N)])
    assert few.sentences()[0].startswith("Not known")
    none = measured(
        *(one._replace(confidence=0.5 * one.confidence) for one in (first, second)), gains
    )
    assert none.cells()[1][-2] == "-"
    assert none.to_dict()["points"][0]["accuracy"] is None
    with pytest.raises(InputError, match="two groups"):
        measured(first, second, gains, groups=["one"] * N)

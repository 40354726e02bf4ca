"""What version 0.1 wrote is read under the names of today."""

from __future__ import annotations

from calibration.monitoring.drift import Sketch
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.assessment.upgrade import FEATURES, upgraded_sketch


def test_an_old_sketch_is_read() -> None:
    """Its features have today's names, and their numbers as they were."""
    old_names = {new: old for old, new in FEATURES.items()}
    rows = [
        {
            "name": old_names.get(name, name),
            "edges": [0.0, float(i + 1)],
            "shares": [0.25, 0.5, 0.25],
        }
        for i, name in enumerate(RANKING_FEATURES)
    ]
    assert {row["name"] for row in rows} - set(RANKING_FEATURES)
    found = Sketch.from_dict(upgraded_sketch({"kind": "drift-sketch", "n": 9, "features": rows}))
    assert found.names == tuple(RANKING_FEATURES)
    assert [f.edges[-1] for f in found.features] == [row["edges"][1] for row in rows]

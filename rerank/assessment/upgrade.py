"""Model folders of version 0.1 (format 2), read as if this version had written them.

Names have changed since, one map takes one more input, and one is missing: see `FittedMaps`.
Confidences and orders are the same to the last bit. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORMAT = 3  # of the manifest; from here on the names are those of today

MODES = {"search": "found", "rerank": "given"}
MAPS = {
    "passage_features": "evidence",
    "ranking_features": "features",
    "cutoff": "floor",
    "segments": "kinds",
    "score": "relevance",
}
MEASURED = {"given": "rerank", "passages_read": "passages_scored"}
FEATURES = {
    "unread": "unscored",
    "passages_read": "passages_scored",
    "top_relevance": "top_score",
    "relevance_margin": "score_margin",
    "relevance_none": "score_none",
    "relevance_share": "score_share",
}


def upgraded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of an old manifest."""
    return {{"correct_by": "segment_by"}.get(key, key): value for key, value in config.items()}


def upgraded_calibrators(kept: Mapping[str, Any], bound_to: str) -> dict[str, Any]:
    """The content of an old `calibrators.json`, bound to the upgraded configuration."""
    return {"bound_to": bound_to} | {
        new: _maps(kept[old]) for new, old in MODES.items() if isinstance(kept.get(old), Mapping)
    }


def upgraded_sketch(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an old `sketch.json`."""
    features = kept.get("features")
    if not isinstance(features, list):
        return dict(kept)
    return {**kept, "features": [_renamed(f) if isinstance(f, dict) else f for f in features]}


def _renamed(feature: Mapping[str, Any]) -> dict[str, Any]:
    name = feature.get("name")
    return {**feature, "name": FEATURES.get(name, name) if isinstance(name, str) else name}


def upgraded_measurements(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an old `reliability.json`."""
    return {MEASURED.get(key, key): value for key, value in kept.items()}


def _maps(old: Mapping[str, Any]) -> dict[str, Any]:
    names = {old_name: name for name, old_name in MAPS.items()}
    maps = {names.get(key, key): value for key, value in old.items()}
    features = {key: _features(maps.get(key)) for key in ("passage_features", "ranking_features")}
    return maps | features | {"hazard": _hazard(maps.get("hazard")), "another": None}


def _hazard(old: Any) -> Any:
    """The hazard with one more input, `below_top`, which weighs nothing."""
    if not isinstance(old, Mapping):
        return old
    added = {"coef": 0.0, "mean": 0.0, "scale": 1.0, "low": 0.0, "high": 0.0}
    return {
        key: [*value[:1], added[key], *value[1:]]
        if key in added and isinstance(value, list) and value
        else value
        for key, value in old.items()
    }


def _features(names: Any) -> Any:
    return [FEATURES.get(n, n) for n in names] if isinstance(names, list) else names

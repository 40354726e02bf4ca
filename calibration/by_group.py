"""One map for all and a small correction for each kind: collection, language or source.

A kind with many labels gets a calibration of its own, one with few stays with the pooled map. It
knows nothing of what a kind is; a kind that was never seen has the pooled probability.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.maps import CalibrationMap, Floats, LogisticMap, log_odds, map_from_dict

Kinds = Sequence[Hashable] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class ByGroupMap:
    """A pooled map, and for some kinds an update of the log odds of its probabilities.

    Raises:
        ValueError: an update that takes more than one input.
    """

    pooled: CalibrationMap
    updates: Mapping[str, LogisticMap]

    def __post_init__(self) -> None:
        for kind, update in self.updates.items():
            if not isinstance(update, LogisticMap) or len(update.coef) != 1:
                raise ValueError(f"the update of {kind!r} must be a logistic map of one input")

    def predict(self, X: ArrayLike, kinds: Kinds) -> Floats:
        """Return (n,) probabilities for rows X whose kinds are (n,), compared as text.

        Raises:
            ValueError: not one kind a row, or as the pooled map.
        """
        p = self.pooled.predict(X)
        names = as_kinds(kinds, len(p))
        for kind in set(names.tolist()) & set(self.updates):
            rows = names == kind
            p[rows] = self.updates[kind].predict(log_odds(p[rows]))
        return p

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain JSON values, with `"kind": "by-group"`."""
        updates = {kind: update.to_dict() for kind, update in self.updates.items()}
        return {"kind": "by-group", "pooled": self.pooled.to_dict(), "updates": updates}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> ByGroupMap:
        """Return what `to_dict` wrote; its numbers are the same to the last bit.

        Raises:
            ValueError: another kind, a missing or unknown key, or as `map_from_dict`.
        """
        if not isinstance(d, Mapping) or d.get("kind") != "by-group":
            raise ValueError(f"expected a map of kind by-group, got {str(d)[:80]}")
        if set(d) != {"kind", "pooled", "updates"} or not isinstance(d["updates"], Mapping):
            raise ValueError(f"a by-group map has pooled and updates, got {sorted(d)}")
        updates: dict[str, Any] = {k: map_from_dict(v) for k, v in d["updates"].items()}
        return cls(map_from_dict(d["pooled"]), updates)


def as_kinds(kinds: Kinds, n: int) -> NDArray[np.str_]:
    """Return (n,) kinds as text.

    Raises:
        ValueError: not one kind a row.
    """
    names = np.array([str(kind) for kind in kinds], dtype=np.str_)
    if names.shape != (n,):
        raise ValueError(f"expected one kind a row, shape ({n},), got {names.shape}")
    return names


def fit_by_group(
    X: ArrayLike,
    y: ArrayLike,
    kinds: Kinds,
    groups: Sequence[Hashable] | NDArray[Any] | None = None,
    *,
    then: str = "logistic",
    folds: int = 5,
    C: float | None = None,
    random_state: int = 0,
) -> ByGroupMap:
    """Return the two-stage map of all rows X (n, d), with an update for each of the kinds (n,).

    A kind's update is `fit_update` on the pooled map's out-of-fold log odds of its rows: slope and
    intercept, shrunk towards the pooled map, so that ten rows of a kind move it little and a
    thousand as far as they say. The pooled map should not know the kind; where it may, give the
    kind as a feature as well.

    Raises:
        ValueError: as `fit_two_stage`; not one kind a row.
    """
    from calibration.fitting import fit_two_stage
    from calibration.score_fitting import fit_update

    pooled, _, logits = fit_two_stage(
        X, y, groups, then=then, folds=folds, C=C, random_state=random_state
    )
    scores, labels = log_odds(pooled.then.predict(logits)), np.asarray(y)
    names = as_kinds(kinds, len(labels))
    updates = {
        kind: fit_update(scores[names == kind], labels[names == kind])
        for kind in sorted(set(names.tolist()))
    }
    return ByGroupMap(pooled, updates)

"""A small correction for each kind of row (collection, language, source), after a map for all.

A kind with many labels gets a calibration of its own, one with few stays with the common one: group
calibration (Hébert-Johnson et al. 2018) of kinds that do not overlap. It knows nothing of what a
kind is; of one that was never seen the probability stays as it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats, log_odds
from calibration.effective import Groups
from calibration.maps import LogisticMap, map_from_dict
from calibration.selection import codes, grouped_folds

Kinds = Sequence[Hashable] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class ByKind:
    """For some kinds an update of the log odds of a probability; for others none.

    Raises:
        ValueError: an update that takes more than one input.
    """

    updates: Mapping[str, LogisticMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, update in self.updates.items():
            if not isinstance(update, LogisticMap) or len(update.coef) != 1:
                raise ValueError(f"the update of {kind!r} must be a logistic map of one input")

    def apply(self, p: ArrayLike, kinds: Kinds) -> Floats:
        """Return (n,) probabilities: p (n,) of rows whose kinds are (n,), compared as text.

        Raises:
            ValueError: not one kind a row.
        """
        moved = np.array(p, dtype=np.float64)
        names = as_kinds(kinds, len(moved))
        for kind in set(names.tolist()) & set(self.updates):
            rows = names == kind
            moved[rows] = self.updates[kind].predict(log_odds(moved[rows]))
        return moved

    def to_dict(self) -> dict[str, Any]:
        """Return the updates as plain JSON values, by kind."""
        return {kind: update.to_dict() for kind, update in self.updates.items()}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> ByKind:
        """Return what `to_dict` wrote; its numbers are the same to the last bit.

        Raises:
            ValueError: no mapping, as `map_from_dict`, or an update of more than one input.
        """
        if not isinstance(d, Mapping):
            raise ValueError(f"expected an update a kind, got {str(d)[:80]}")
        updates: dict[str, Any] = {str(kind): map_from_dict(v) for kind, v in d.items()}
        return cls(updates)


def fit_by_kind(p: ArrayLike, y: ArrayLike, kinds: Kinds, groups: Groups = None) -> ByKind:
    """Return an update for each of the kinds (n,), from probabilities p (n,) and labels y (n,).

    An update is `fit_update`: slope and intercept, shrunk towards none, so that ten rows of a kind
    move it little and a thousand as far as they say, where groups (n,) count for what they are
    worth. The p should be of a map that had not seen
    the rows, and does not know the kinds.

    Raises:
        ValueError: as `fit_update`; not one kind a row.
    """
    from calibration.score_fitting import fit_update

    scores, labels = log_odds(p), np.asarray(y)
    names, number = as_kinds(kinds, len(labels)), codes(groups, len(labels))
    return ByKind(
        {
            kind: fit_update(scores[names == kind], labels[names == kind], number[names == kind])
            for kind in sorted(set(names.tolist()))
        }
    )


def cross_fit_by_kind(
    p: ArrayLike,
    y: ArrayLike,
    kinds: Kinds,
    groups: Sequence[Hashable] | NDArray[Any],
    *,
    folds: int = 5,
    random_state: int = 0,
) -> Floats:
    """Return (n,) probabilities after updates which had seen none of the row's group.

    Raises:
        ValueError: as `fit_by_kind` and `grouped_folds`.
    """
    old, labels = np.asarray(p, dtype=np.float64), np.asarray(y)
    names, number = as_kinds(kinds, len(labels)), codes(groups, len(labels))
    fold = grouped_folds(groups, folds, random_state=random_state)
    moved = old.copy()
    for k in range(int(fold.max()) + 1):
        out = fold == k
        fitted = fit_by_kind(old[~out], labels[~out], names[~out], number[~out])
        moved[out] = fitted.apply(old[out], names[out])
    return moved


def as_kinds(kinds: Kinds, n: int) -> NDArray[np.object_]:
    """Return (n,) kinds as text, each of its own length.

    Raises:
        ValueError: not one kind a row.
    """
    names = np.array([str(kind) for kind in kinds], dtype=np.object_)
    if names.shape != (n,):
        raise ValueError(f"expected one kind a row, shape ({n},), got {names.shape}")
    return names

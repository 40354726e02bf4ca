"""A small correction for each segment of the rows (collection, language, source), after one map.

A segment with many labels gets its own calibration, one with few stays with the common one. This is
group calibration (Hébert-Johnson et al. 2018) of segments that do not overlap. Probabilities of
an unseen segment stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration import arrays
from calibration.arrays import Floats, GroupNames, Groups
from calibration.maps import LogisticMap, map_from_dict
from calibration.selection import grouped_folds, held_out


@dataclass(frozen=True, slots=True)
class Segments:
    """Updates of the log odds of a probability, for some segments; the others have none.

    Raises:
        ValueError: an update that takes more than one input.
    """

    updates: Mapping[str, LogisticMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for segment, update in self.updates.items():
            if not isinstance(update, LogisticMap) or len(update.coef) != 1:
                raise ValueError(f"the update of {segment!r} must be a logistic map of one input")

    def apply(self, p: ArrayLike, segments: GroupNames) -> Floats:
        """Return (n,) probabilities: p (n,) updated by the segments (n,), compared as text."""
        moved = arrays.as_scores(p).copy()
        names = as_segments(segments, len(moved))
        for segment in set(names.tolist()) & set(self.updates):
            rows = names == segment
            moved[rows] = self.updates[segment].predict(arrays.log_odds(moved[rows]))
        return moved

    def to_dict(self) -> dict[str, Any]:
        """Return the updates as plain JSON values, by segment."""
        return {segment: update.to_dict() for segment, update in self.updates.items()}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Segments:
        """Return what `to_dict` wrote; its numbers are the same to the last bit.

        Raises:
            ValueError: not a mapping, as `map_from_dict`, or an update of more than one input.
        """
        if not isinstance(d, Mapping):
            raise ValueError(f"expected an update per segment, got {str(d)[:80]}")
        updates: dict[str, Any] = {str(segment): map_from_dict(v) for segment, v in d.items()}
        return cls(updates)


def fit_segments(
    p: ArrayLike,
    y: ArrayLike,
    segments: GroupNames,
    groups: Groups = None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> tuple[Segments, Floats]:
    """Return an update for each segment (n,), from probabilities p (n,) and labels y (n,).

    With them come (n,) probabilities after updates fitted without the row's group.

    An update is `fit_update`: slope and intercept, shrunk towards no change, so ten rows of a
    segment move it little and a thousand as far as the data say. A row whose segment is "" has
    none: there is no update for it. p should come from a map that had not seen the rows and does
    not know the segments. ValueError also for fewer than two folds or two groups.
    """
    from calibration.fitting import Rows, update_of

    labels, old = arrays.check_y_p(y, p)
    number, scores = arrays.group_codes(groups, len(labels)), arrays.log_odds(old)
    names, moved = as_segments(segments, len(labels)), old.copy()
    rows_of = {segment: names == segment for segment in sorted(set(names.tolist()) - {""})}
    rows = Rows(scores[:, None], labels.astype(np.int64), number)
    for out in held_out(grouped_folds(number, folds, random_state=random_state)):
        for own in rows_of.values():
            if (fitted := own & ~out).any():
                moved[own & out] = update_of(rows.where(fitted)).predict_checked(scores[own & out])
    return Segments({s: update_of(rows.where(own)) for s, own in rows_of.items()}), moved


def as_segments(segments: GroupNames, n: int) -> NDArray[np.object_]:
    """Return (n,) segments as text of any length."""
    names = np.array([str(segment) for segment in segments], dtype=np.object_)
    if names.shape != (n,):
        raise ValueError(f"expected one segment per row, shape ({n},), got {names.shape}")
    return names

"""How few passages may be handed on without losing answers: a threshold chosen with a guarantee."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.monotone_losses import boldest_setting
from rerank.data.labels import Labels
from rerank.types import Floats

LOST = 0.05  # share of all questions, answerable or not, that may lose their answer
THRESHOLDS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def choose_enough(found: Labels, sufficiency: Floats, groups: NDArray[Any]) -> float | None:
    """The lowest sufficiency from which on no more passages need be handed on; None: no promise.

    `found` (n, d) is 1 where one of the first k passages is right, for k = 1 to d, and
    `sufficiency` (n, d) its probability by maps that have not seen the query. Handed on are the
    first k at which the sufficiency reaches the threshold, else all d. A question is lost where d
    passages hold an answer and those handed on do not. Of new questions at most `LOST` are lost,
    with 95 % confidence: see `boldest_setting`.
    """
    settings = [found[:, -1] - _kept(found, sufficiency, t) for t in THRESHOLDS]
    place = boldest_setting(np.column_stack(settings), groups, most=LOST)
    return None if place < 0 else THRESHOLDS[place]


def _kept(found: Labels, sufficiency: Floats, threshold: float) -> Labels:
    """1 where what is handed on holds an answer, (n,)."""
    enough = sufficiency >= threshold
    k = np.where(enough.any(axis=1), enough.argmax(axis=1), found.shape[1] - 1)
    return np.asarray(found[np.arange(len(found)), k], dtype=np.int64)

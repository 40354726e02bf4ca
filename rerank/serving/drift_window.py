"""Have the questions changed? Windows of searches against what the model was fitted on."""

from __future__ import annotations

import numpy as np

from calibration.monitoring.drift import Drift, Sketch, alarm
from rerank.assessment.ranking_features import RANKING_FEATURES, ranking_features
from rerank.types import Assessment, Floats


class DriftWindow:
    """The features of the latest searches, compared when `size` of them are there, then forgotten.

    Windows do not overlap, so each fires by chance with a probability of `level` at most. One
    thread may use it.
    """

    def __init__(self, sketch: Sketch, *, size: int, level: float) -> None:
        self._sketch = sketch
        self._size = size
        self._level = level
        self._rows: list[Floats] = []

    def add(self, found: Assessment) -> Drift | None:
        """Take a search in; what the window says, where it is whole with it."""
        if not len(found.ranking) or self._sketch.names != tuple(RANKING_FEATURES):
            return None
        self._rows.append(ranking_features([found.ranking])[0])
        if len(self._rows) < self._size:
            return None
        rows, self._rows = self._rows, []
        return alarm(self._sketch, np.stack(rows), level=self._level)

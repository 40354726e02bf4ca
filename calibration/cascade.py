"""Two stages that answer alike, the second one dearer: which rows are worth asking it?

Confidences and expected gains in, a band of the first stage's confidence out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Bools, as_floats, check_share


class Band(NamedTuple):
    """The first stage's confidences, both ends included, at which the second stage is asked."""

    low: float
    high: float

    def asks(self, first: ArrayLike) -> Bools:
        """Which of the confidences `first` (n,) lie in the band."""
        values = as_floats(first)
        return (values >= self.low) & (values <= self.high)


NEVER = Band(1.0, 0.0)
ROUNDING = 1e-9  # of sums


def choose_band(first: ArrayLike, gains: ArrayLike, most: float) -> Band:
    """The band with the largest gain that asks for at most a share `most` of the rows, in (0, 1).

    `first` (n,) are the first stage's confidences, `gains` (n,) what is to be expected from asking
    the second one. Rows of equal `first` are asked together. Of equal gains the band that asks for
    fewer rows; `NEVER`, if none has a gain.
    """
    distinct, number = np.unique(as_floats(first), return_inverse=True)
    counts, of_rows = np.bincount(number), np.bincount(number, as_floats(gains))
    rows, gain = (np.concatenate([[0], np.cumsum(each)]) for each in (counts, of_rows))
    room = check_share("most", most) * len(number)
    ends = np.searchsorted(rows, rows[:-1] + room + ROUNDING, side="right")
    best, band = (ROUNDING, 0), NEVER
    for start, end in enumerate(ends.tolist()):
        place = start + int((gain[start:end] - gain[start]).argmax())
        found = float(gain[place] - gain[start]), -int(rows[place] - rows[start])
        if found > best:
            best, band = found, Band(float(distinct[start]), float(distinct[place - 1]))
    return band

"""Labels as an exactly calibrated confidence would have them: what chance alone looks like.

Confidences in, drawn labels out; numpy only. It knows nothing of what is measured on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from calibration.arrays import Floats, checked, probabilities
from calibration.selection import codes

Groups = Sequence[Hashable] | NDArray[Any] | None


def dependence(y: ArrayLike, p: ArrayLike, groups: Groups) -> float:
    """Return how far the labels of a group go together, in [0, 1]: 0 not at all, 1 as far as can.

    The products of residuals y - p of the pairs within groups (n,), over what they would be if one
    uniform number decided a whole group (min(p, q) - p q of a pair), and one standard error (by
    group) more: too little would take dependence for miscalibration. 1 too where one number
    decides nothing, because all p are 0 or 1; 0 without groups of two rows.
    """
    labels, values = checked(y, p)
    return _dependence(labels, values, codes(groups, len(labels)))


def _dependence(labels: Floats, values: Floats, number: NDArray[np.int64]) -> float:
    """`dependence`, of groups that have numbers (n,)."""
    sizes, rest = np.bincount(number), labels - values
    if sizes.max() < 2:
        return 0.0
    found = np.bincount(number, rest) ** 2 - np.bincount(number, rest**2)
    order = np.lexsort((values, number))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    above = np.repeat(sizes, sizes) - 1 - rank
    least = 2 * np.bincount(number[order], values[order] * above)
    most = least - (np.bincount(number, values) ** 2 - np.bincount(number, values**2))
    if most.sum() <= 0:
        return 1.0
    share = found.sum() / most.sum()
    error = np.sqrt(((found - share * most) ** 2).sum()) / most.sum()
    return float(np.clip(share + error, 0, 1))


def sample_null_labels(
    p: ArrayLike, draws: int, rng: Generator, *, groups: Groups = None, y: ArrayLike | None = None
) -> Iterator[Floats]:
    """Yield `draws` times labels (n,) of 0 and 1 that are 1 with probability p, exactly.

    Rows of one group (n,) are right together as far as `dependence` finds in the labels y, and
    without y as far as can be, the worst case: one uniform number a group decides a row with the
    chance sqrt(dependence), one of its own otherwise. groups None: every row by itself.
    """
    values = probabilities(p)
    number = codes(groups, len(values))
    count = int(number.max()) + 1
    together = 0.0
    if count < len(values):
        together = 1.0 if y is None else _dependence(*checked(y, values), number)
    for _ in range(draws):
        u = rng.random(len(values))
        if together:
            shared = rng.random(len(values)) < np.sqrt(together)
            u = np.where(shared, rng.random(count)[number], u)
        yield (u < values).astype(np.float64)

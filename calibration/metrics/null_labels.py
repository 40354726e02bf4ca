"""Labels drawn as if a confidence were exactly calibrated: what chance alone looks like.

Confidences in, drawn labels out; numpy only. It knows nothing of what is measured on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Groups, check_probabilities, check_y_p, group_codes


def dependence(y: ArrayLike, p: ArrayLike, groups: Groups) -> float:
    """Return how much the labels of one group depend on each other: 0 not at all, 1 fully.

    Full dependence means that one uniform number u decides all labels of a group (n,): a label is 1
    if u < p. The product of two residuals y - p of one group is then min(p, q) - p q on average.
    The result is the sum of these products over all pairs, divided by its value at full dependence.
    The residuals are taken around their mean, so that a p which is too high everywhere does not
    look like dependence. One standard error, by group, is added: if the result is too low,
    dependence looks like miscalibration. It is 0 if no group has two rows, and 1 if all p are 0 or
    1, or if there is one group.
    """
    labels, values = check_y_p(y, p)
    number = group_codes(groups, len(labels))
    sizes, residuals = np.bincount(number), labels - values
    if sizes.max() < 2:
        return 0.0
    if len(sizes) < 2:
        return 1.0
    residuals = (residuals - residuals.mean()) * np.sqrt(len(sizes) / (len(sizes) - 1))
    together = np.bincount(number, residuals) ** 2 - np.bincount(number, residuals**2)
    order = np.lexsort((values, number))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    above = np.repeat(sizes, sizes) - 1 - rank
    least = 2 * np.bincount(number[order], values[order] * above)
    most = least - (np.bincount(number, values) ** 2 - np.bincount(number, values**2))
    if most.sum() <= 0:
        return 1.0
    share = together.sum() / most.sum()
    error = np.sqrt(((together - share * most) ** 2).sum()) / most.sum()
    return float(np.clip(share + error, 0, 1))


def sample_null_labels(
    p: ArrayLike, draws: int, rng: Generator, *, groups: Groups = None, y: ArrayLike | None = None
) -> Iterator[Floats]:
    """Yield labels (n,) of 0 and 1, `draws` times, each 1 with exactly the probability p.

    Rows of one group (n,) are as dependent as the labels y (`dependence`); without y they depend
    fully, the worst case. With probability sqrt(dependence) a label is decided by the uniform
    number of its group, otherwise by its own. groups None: all rows are independent.
    """
    values = check_probabilities(p)
    number = group_codes(groups, len(values))
    count = int(number.max()) + 1
    together = 0.0
    if count < len(values):
        together = 1.0 if y is None else dependence(y, values, number)
    for _ in range(draws):
        u = rng.random(len(values))
        if together:
            shared = rng.random(len(values)) < np.sqrt(together)
            u = np.where(shared, rng.random(count)[number], u)
        yield (u < values).astype(np.float64)

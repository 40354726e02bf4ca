"""Choose rows to label, and estimate a mean over all rows from them: probability sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from calibration.arrays import Floats, Groups, Ints, as_floats, check_share, check_y_p, group_codes
from calibration.metrics.intervals import UNKNOWN, Estimate, design_effect
from calibration.thresholds import binomial_interval

Quantity = Literal["accuracy", "map"]  # accuracy above the threshold; calibration map
STRATA = 8  # parts of the confidences, with equally many rows, that are sampled separately
MIN_LABELS = 2  # labels per stratum, if the budget allows: fewer say nothing of its spread
ACCEPTED_STRATA = 3  # of `judged_strata`: how many are of rows that reach the threshold
AGREE = (0, 4)  # of `judged_strata`: those where the judge says what the threshold says


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows to label, and the probability with which each was drawn; (n,) each."""

    rows: Ints  # rising
    probability: Floats

    @property
    def weights(self) -> Floats:
        """How many rows each drawn row represents (Horvitz and Thompson 1952)."""
        return 1 / self.probability


def choose_rows(
    confidence: ArrayLike,
    count: int,
    *,
    quantity: Quantity = "accuracy",
    threshold: float = 0.7,
    random_state: int = 0,
) -> Sample:
    """Draw a stratified sample of `count` rows by their confidences (n,); any row may be drawn.

    For the accuracy above `threshold`, in (0, 1), a stratum gets labels in proportion to its rows
    times their standard deviation, sqrt(c (1 - c)) of its mean confidence c (Neyman 1934); the rows
    below the threshold get `MIN_LABELS` in all. For the map, labels are in proportion to the
    standard deviation alone, so that rare confidences are measured as well as common ones.
    """
    _, p = check_y_p(np.zeros(np.size(confidence)), confidence)
    n = len(p)
    if not 1 <= count <= n:
        raise ValueError(f"count must lie between 1 and the {n} rows, got {count}")
    threshold = check_share("threshold", threshold)
    accepted, n_strata = p >= threshold, min(STRATA, count // (2 * MIN_LABELS))
    if n_strata:
        below = 1 if quantity == "accuracy" else n_strata
        strata = _parts(p, np.flatnonzero(accepted), n_strata)
        strata += _parts(p, np.flatnonzero(~accepted), below)
    else:  # too few labels
        strata = _parts(p, np.arange(n), 1)
    sizes = np.array([len(stratum) for stratum in strata])
    means = np.array([p[stratum].mean() for stratum in strata])
    spread = np.sqrt(np.clip(means * (1 - means), 0.01, None))
    above = np.array([accepted[stratum[0]] for stratum in strata])
    proportions = spread * sizes * np.where(above, 1.0, 1e-6) if quantity == "accuracy" else spread
    return _draw(strata, proportions, count, random_state)


def judged_strata(confidence: ArrayLike, says: ArrayLike, threshold: float) -> Ints:
    """Return (n,) strata of rows by what a judge `says` (n,): 1 yes, 0 no, NaN nothing.

    Of the confidences (n,) from `threshold` up: 0, 1 and 2; of those below: 3, 4 and 5.
    """
    _, p = check_y_p(np.zeros(np.size(confidence)), confidence)
    given = np.asarray(says, dtype=np.float64)
    if given.shape != p.shape or not (np.isnan(given) | (given == 0) | (given == 1)).all():
        raise ValueError("expected 1, 0 or NaN of the judge for every row")
    said = np.where(np.isnan(given), 2, 1 - np.nan_to_num(given)).astype(np.int64)
    return np.asarray(said + 3 * (p < threshold))


def choose_judged(strata: ArrayLike, count: int, *, random_state: int = 0) -> Sample:
    """Draw a stratified sample of `count` rows by their `judged_strata` (n,), to correct the judge.

    Where the judge and the threshold agree, rows are taken to be so with 90%, otherwise with 50%: a
    stratum gets labels in proportion to its rows times that standard deviation (Neyman 1934). So
    more are drawn where they disagree, and each row's probability is known.
    """
    number = np.asarray(strata, dtype=np.int64)
    if not 1 <= count <= len(number):
        raise ValueError(f"count must lie between 1 and the {len(number)} rows, got {count}")
    present = np.unique(number).tolist()
    parts = [np.flatnonzero(number == h) for h in present]
    spread = [0.3 if h in AGREE else 0.5 for h in present]
    proportions = np.array([s * len(part) for s, part in zip(spread, parts, strict=True)])
    return _draw(parts, proportions, count, random_state)


def _draw(strata: Sequence[Ints], proportions: Floats, count: int, random_state: int) -> Sample:
    """Draw `count` rows, of each stratum in these proportions."""
    labels_of = allocate(proportions, np.array([len(s) for s in strata]), count)
    rng = np.random.default_rng(random_state)
    pairs = [
        (row, labels / len(stratum))
        for stratum, labels in zip(strata, labels_of.tolist(), strict=True)
        for row in rng.choice(stratum, labels, replace=False).tolist()
    ]
    rows, probability = zip(*sorted(pairs), strict=True)
    return Sample(np.array(rows, dtype=np.int64), np.array(probability))


def allocate(proportions: Floats, sizes: Ints, count: int) -> Ints:
    """Share `count` labels among strata (m,) in these proportions, at most `sizes` (m,) each.

    Each stratum first gets `MIN_LABELS` while they last, the largest strata before the others.
    """
    labels = np.zeros(len(sizes), dtype=np.int64)
    for _ in range(MIN_LABELS):
        for h in np.argsort(-sizes, kind="stable"):
            if labels.sum() < count and labels[h] < sizes[h]:
                labels[h] += 1
    while labels.sum() < count:  # to the stratum furthest below its share
        behind = np.where(labels < sizes, proportions / (labels + 1), -np.inf)
        labels[int(np.argmax(behind))] += 1
    return labels


def weighted_mean(
    y: ArrayLike, weights: ArrayLike, groups: Groups = None, *, among: ArrayLike | None = None
) -> Estimate:
    """Return the mean of all rows from drawn labels y (n,) of 0 and 1 with weights (n,) above 0.

    This is Hajek's estimate: sum of w y / sum of w, over the drawn rows where `among` (n,) is True;
    None: over all. Rows of equal weight form a stratum. The variance is the sum over strata of that
    of a ratio (Cochran 1977, 5A.14), each stratum with half a hit and half a miss added. The
    interval is exact for the number of single rows with that variance (Korn and Graubard 1998),
    which the design effect of groups (n,) divides. It is NaN if every stratum has one label. The
    strata should be known to lie within `among` or outside.
    """
    labels, _ = check_y_p(y, np.zeros(np.size(y)))
    w, kept = as_floats(weights), np.ones(len(labels), dtype=np.bool_)
    if w.shape != labels.shape or not (np.isfinite(w) & (w > 0)).all():
        raise ValueError("expected a weight above 0 for every label")
    if among is not None:
        kept = np.asarray(among, dtype=np.bool_)
    if kept.shape != labels.shape or not kept.any():
        raise ValueError("expected `among` to be True for at least one of the labels")
    _, stratum = np.unique(np.round(w, 9), return_inverse=True)
    drawn, n = np.bincount(stratum), np.bincount(stratum, kept)
    total = w[kept].sum()
    mean = float((w * labels)[kept].sum() / total)
    if n.max() <= 1:
        return Estimate(mean, *UNKNOWN)
    rate = (np.bincount(stratum, labels * kept) + 0.5) / (n + 1)
    middle = float((np.bincount(stratum, w * kept) / total * rate).sum())
    square = n / drawn * (rate * (1 - middle) ** 2 + (1 - rate) * middle**2)
    spread = square - (n / drawn * (rate - middle)) ** 2  # variance of a row's y - middle, or 0
    variance = float(((np.bincount(stratum, w) / total) ** 2 * spread / drawn).sum())
    effective = middle * (1 - middle) / variance
    effective /= design_effect(w * kept * (labels - mean), group_codes(groups, len(labels)))
    return Estimate(mean, *binomial_interval(mean * effective, effective))


def _parts(p: Floats, rows: Ints, count: int) -> list[Ints]:
    """Split the rows by rising confidence into `count` parts of about equal size; none is empty."""
    ordered = rows[np.argsort(p[rows], kind="stable")]
    return [part for part in np.array_split(ordered, count) if len(part)]

"""Folds by query group, out-of-fold predictions, the choice among calibrators, and that of a band.

Arrays in, a named choice or a band out; numpy only. Candidates are out-of-fold probabilities, in
order from the simplest candidate to the most complex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration import arrays
from calibration.arrays import (
    Bools,
    Codes,
    Floats,
    GroupNames,
    Groups,
    Ints,
    as_floats,
    check_share,
)
from calibration.metrics.intervals import grouped_standard_error
from calibration.metrics.scores import row_losses

# independent labelled rows that a candidate takes to be considered; fewer it would overfit
MINIMUM_ROWS: Mapping[str, int] = {"beta": 300, "isotonic": 1000}


class Predicts(Protocol):
    """Anything with `predict(X) -> (n,)` probabilities: a map."""

    def predict(self, X: Any, /) -> Floats:
        """Return (n,) probabilities."""
        ...


Fit = Callable[[Floats, Ints, NDArray[Any]], Predicts]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why."""

    name: str
    losses: Mapping[str, float]  # grouped cross-validated log loss, in nats, simple to complex
    reason: str  # one sentence


def grouped_folds(groups: GroupNames, folds: int, *, random_state: int) -> Ints:
    """Return (n,) fold numbers from 0; the rows of one group share a fold.

    Groups are shuffled and dealt, largest first, to the fold with the fewest rows. The same groups
    and `random_state` give the same folds, whatever the order of the rows. With fewer groups than
    folds, every group is its own fold.
    """
    if folds < 1:
        raise ValueError(f"expected at least one fold, got {folds}")
    number = arrays.group_codes(groups, len(groups))
    sizes = np.bincount(number)
    shuffled = np.random.default_rng(random_state).permutation(len(sizes))
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    load = np.zeros(min(folds, max(1, len(sizes))), dtype=np.int64)
    fold_of = np.zeros(len(sizes), dtype=np.int64)
    for group in order:
        fold_of[group] = int(np.argmin(load))
        load[fold_of[group]] += sizes[group]
    return fold_of[number]


def held_out(fold: Ints) -> Iterator[NDArray[np.bool_]]:
    """Yield, for each fold of (n,) fold numbers, which rows (n,) it holds out.

    Raises:
        ValueError: fewer than two folds, so that no row would be left to fit on.
    """
    if len(fold) == 0 or fold.max() == 0:
        raise ValueError("cross-fitting needs at least two folds and two groups")
    return (fold == k for k in range(int(fold.max()) + 1))


def cross_fit(
    fit: Fit,
    X: ArrayLike,
    y: ArrayLike,
    groups: Groups = None,
    *,
    folds: int = 5,
    random_state: int = 0,
) -> Floats:
    """Return (n,) out-of-fold predictions: each row's comes from a fit without the row's group.

    `fit(X, y, groups)` returns an object with `.predict(X)`. X is (n, d) or (n,); y is (n,).

    Raises:
        ValueError: lengths that differ, masked values, or fewer than two groups.
    """
    arrays.refuse_masked(y)
    features, labels = arrays.as_floats(X), np.asarray(y)
    if len(features) != len(labels):
        raise ValueError(f"X has {len(features)} rows and y has {len(labels)}")
    number = arrays.group_codes(groups, len(labels))
    fold = grouped_folds(number, folds, random_state=random_state)
    result = np.empty(len(labels))
    for out in held_out(fold):
        result[out] = fit(features[~out], labels[~out], number[~out]).predict(features[out])
    return result


def one_standard_error(table: Floats, number: Codes) -> int:
    """Return the first row of losses (candidates, n) within one standard error of the best.

    Candidates run from simple to complex. The error is that of the *difference* from the best on
    the same rows, by group; the best's own error (Breiman et al. 1984) is several times larger than
    any real difference at a few hundred rows.
    """
    best = int(np.argmin(table.mean(axis=1)))
    for k in range(best):
        gap = table[k] - table[best]
        if gap.mean() <= grouped_standard_error(gap, number):
            return k
    return best


def choose(
    predictions: Mapping[str, ArrayLike],
    y: ArrayLike,
    groups: Groups = None,
    *,
    left_out: Sequence[str] = (),
    effective_n: float | None = None,
) -> Choice:
    """Return the simplest candidate within one standard error of the lowest grouped log loss.

    `predictions` are the candidates' out-of-fold probabilities (n,), simple to complex. For the
    reason only: `left_out` names those not considered because there are too few rows; `effective_n`
    is the effective number of rows. Errors name the candidate.
    """
    labels, names, checked = arrays.as_floats(y), list(predictions), []
    if not names:
        raise ValueError("expected out-of-fold predictions of one candidate at least, got none")
    number = arrays.group_codes(groups, len(labels))
    for name in names:
        try:
            checked.append(arrays.check_y_p(labels, predictions[name]))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    rows = np.array([row_losses(*each) for each in checked])
    means = rows.mean(axis=1)
    best, chosen = int(np.argmin(means)), one_standard_error(rows, number)
    reason = f"{names[chosen]} has the lowest grouped cross-validated log loss, {means[chosen]:.4f}"
    if chosen != best:
        gap_error = grouped_standard_error(rows[chosen] - rows[best], number)
        reason = (
            f"{names[chosen]} ({means[chosen]:.4f}) is the simplest within one standard error "
            f"({gap_error:.4f}) of the lowest log loss, {names[best]} ({means[best]:.4f})"
        )
    if left_out:
        reason += f"; {', '.join(left_out)} not considered on {len(labels)} rows"
        if effective_n is not None and round(effective_n) < len(labels):
            reason += f", whose labels are worth those of {effective_n:.0f} independent ones"
    losses = MappingProxyType(dict(zip(names, means.tolist(), strict=True)))
    return Choice(names[chosen], losses, reason + ".")


def enough_rows(name: str, n: float) -> bool:
    """Return whether n independent rows are enough to consider a candidate (`MINIMUM_ROWS`)."""
    return n >= MINIMUM_ROWS.get(name, 0)


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

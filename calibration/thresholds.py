"""Exact binomial bounds, and thresholds that a finite sample certifies.

Counts, or confidences with labels, in; bounds and certificates out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibration import arrays, sequence_tests
from calibration.arrays import Floats, Groups, Ints
from calibration.group_tests import expected_groups, group_sizes, group_tails, mean_upper_bound
from calibration.metrics.intervals import Interval
from calibration.prediction_powered import Strata, labels_for

ABOUT = "new questions like these"  # what a promise is about, by default
RIGHT = "right"  # what is promised of an accepted row, by default
FEW = 50  # with fewer independent labels, it cannot be told how many more are needed
MOST = 10**9  # more labels than this were not counted
MAX_TIMES = 40  # the advice is never to collect more than this many times the labels that there are
LEAST_TIMES = 1.25  # nor fewer than this many times: there were enough by their accuracy
PLACES = 64  # places at which it is asked how many labels would do
ROUNDING = 1e-6  # what two ways to compute a tail may differ by
OF_DRAWS = 0.005  # what two runs of random draws may differ by


def lower_bound(hits: float, n: float, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson lower bound of a share, from `hits` of `n`.

    The true share is above it in at least `level` of all samples, for any true share (Clopper and
    Pearson 1934). No hit gives 0.0, and so does n = 0. Numbers that are not whole are those of an
    effective sample (Korn and Graubard 1998).
    """
    hits, n, level = _checked(hits, n, level)
    if hits == 0:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(hits, n - hits + 1, 1 - level))


def upper_bound(hits: float, n: float, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper bound of a share; 1.0 if hits = n, even if 0."""
    hits, n, level = _checked(hits, n, level)
    return 1.0 - lower_bound(n - hits, n, level=level)


def binomial_interval(hits: float, n: float) -> Interval:
    """Return the two-sided 95% interval of a share: both Clopper-Pearson bounds at 97.5%."""
    return lower_bound(hits, n, level=0.975), upper_bound(hits, n, level=0.975)


def percent(share: float) -> str:
    """A promised share as it was given, not rounded: 87.5%."""
    return f"{100 * share:.10g}%"


def binomial_tail(hits: int, n: int, share: float) -> float:
    """Return P(at least `hits` of `n` rows are right) if each is with probability `share`.

    The exact sum, without SciPy: hits > n share, so that its terms fall.
    """
    misses = n - hits
    ways = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(misses + 1)
    term = math.exp(ways + hits * math.log(share) + misses * math.log1p(-share))
    total = 0.0
    while term > total * 1e-17:
        total += term
        term *= (n - hits) / (hits + 1) * share / (1 - share)
        hits += 1
    return total


@dataclass(frozen=True, slots=True)
class Certificate:
    """The lowest threshold that is promised, or None and the reason.

    threshold: accept if the confidence is at least this; then at least `target` of the accepted
        rows are right, in `level` of all samples that could have been drawn. None: no promise.
    labels_needed: queries needed for a promise, four times in five, if the accuracy stays as
        measured; None if there is a threshold, if `MAX_TIMES` times as many would not do, or if
        none of at least `FEW` queries reaches the floor.
    """

    threshold: float | None
    target: float
    level: float
    queries: int  # labelled ones that it rests on
    accepted: int  # of these, how many reach the threshold
    right: int  # of the accepted
    labels_needed: int | None
    about: str = ABOUT  # the questions that the promise is about, in words
    groups: int | None = None  # of the queries, if it is about new groups; None: by rows
    refused: str = ""  # why nothing is promised, whatever the counts say
    event: str = RIGHT  # what is promised of rows, such as "have an answer"
    copies: int = 0  # of the queries, not labelled but made of labelled ones
    judge: str = ""  # what has judged more questions than are labelled; "" for none
    strata: Strata | None = None  # of the judged questions, by what the judge says

    def __post_init__(self) -> None:
        """Refuse what `certify` and `certify_judged` cannot have made."""
        shares = (self.target, self.level, 0.0 if self.threshold is None else self.threshold)
        if not all(isinstance(share, (int, float)) and 0 <= share <= 1 for share in shares):
            raise ValueError(f"threshold, target and level should be in [0, 1], got {shares}")
        counts = (self.right, self.accepted, self.queries)
        needed = 0 if self.labels_needed is None else self.labels_needed
        groups = 1 if self.groups is None else self.groups
        if not all(type(count) is int for count in (*counts, needed, groups, self.copies)):
            raise ValueError(f"expected whole counts, got {(*counts, needed, groups, self.copies)}")
        if not 0 <= self.right <= self.accepted <= self.queries <= MOST or needed < 0:
            raise ValueError(f"expected 0 <= right <= accepted <= queries <= {MOST}, got {counts}")
        if self.groups is not None and not 0 <= self.groups <= self.queries:
            raise ValueError(f"expected at most {self.queries} groups, got {self.groups}")
        if not 0 <= self.copies <= self.queries:
            raise ValueError(f"expected at most {self.queries} copies, got {self.copies}")
        if isinstance(self.strata, Mapping):  # of a file
            object.__setattr__(self, "strata", Strata(**self.strata))
        if not isinstance(self.judge, str) or bool(self.judge) != (self.strata is not None):
            raise ValueError(f"a judge has a name and strata, got {self.judge!r} {self.strata}")
        for name in ("about", "event"):
            if not isinstance(text := getattr(self, name), str) or not text:
                raise ValueError(f"{name} should say what is promised, got {text!r:.80}")
        if not isinstance(self.refused, str) or (self.refused and self.threshold is not None):
            raise ValueError(f"refused should say why there is no threshold, got {self.refused!r}")
        if self.threshold is not None and not (self.level < 1 and self._follows):
            promise = f"{percent(self.target)} at {percent(self.level)} confidence"
            raise ValueError(f"{self.right} right of {self.accepted} certify no {promise}")

    @property
    def _follows(self) -> bool:
        """Whether the counts can have certified a threshold.

        By rows, if the exact binomial tail is at most 1 - level. By groups, the p-value is that of
        as many groups as can have a right row, all right: none is lower (see `group_tails`). With a
        judge, it is that of the strata.
        """
        if (strata := self.strata) is not None:
            labels, right = sum(strata.labelled), sum(strata.right)
            same = (self.queries, self.accepted, self.right) == (labels, labels, right)
            return same and strata.tail(self.target) <= 1 - self.level + OF_DRAWS
        excess = self.right - self.target * self.accepted
        if not self.target or (self.groups is None and excess <= 0):
            return False
        if self.groups is None:
            chance = binomial_tail(self.right, self.accepted, self.target)
        else:
            chance = self.target ** min(self.groups, self.right)
        return chance <= 1 - self.level + ROUNDING

    @property
    def sentence(self) -> str:
        """The promise in words, or why there is none and what it would take."""
        if self.refused:
            return f"Warning: nothing is certified. {self.refused}"
        event = "get a right answer" if self.event == RIGHT else self.event
        each = "" if self.groups is None else " (each group counts once)"
        share, level = percent(self.target), percent(self.level)
        promise = f"at least {share} {event}, at {level} confidence{each}"
        if self.threshold is not None:
            return (
                f"Certified from {self.threshold:.3f} up: of {self.about}, {promise}. It rests on "
                f"{self._rests_on}: {self.accepted} of them ({self.accepted / self.queries:.0%}) "
                f"reach {self.threshold:.3f}, and {self.right} of these {event}."
            )
        return f"No threshold is certified ({promise}) from {self._rests_on}: {self._missing}."

    @property
    def brief(self) -> str:
        """From where on it is certified, or why nothing is: a clause of one line."""
        if self.refused:
            return self.sentence
        if self.threshold is not None:
            return (
                f"Certified from {self.threshold:.3f} up: at least {percent(self.target)}, for "
                f"{self.about}."
            )
        return f"Nothing is certified yet for {self.about}: {self._missing}."

    @property
    def _missing(self) -> str:
        if self.too_few:
            return "too few labels to tell how many it takes"
        if self.labels_missing is None:
            return f"{MAX_TIMES} times as many would not do, better scores are needed"
        others = "" if self.groups is None else ", of other groups,"
        return f"about {self.labels_missing:,} more{others} would suffice at the same accuracy"

    @property
    def too_few(self) -> bool:
        """Whether nothing is promised, of labels too few to tell how many it would take."""
        independent = self.queries if self.groups is None else self.groups
        undecided = self.threshold is None and self.labels_needed is None and not self.refused
        return undecided and independent < FEW

    @property
    def labels_missing(self) -> int | None:
        """`labels_needed` minus the queries there are, and as many copies in proportion.

        Rounded up to tens, as it is an estimate; None if `labels_needed` is.
        """
        if self.labels_needed is None:
            return None
        labelled = 1 - self.copies / max(1, self.queries)
        return max(10, math.ceil((self.labels_needed - self.queries) * labelled / 10) * 10)

    @property
    def _rests_on(self) -> str:
        groups = {None: "", 1: " in 1 group"}.get(self.groups, f" in {self.groups} groups")
        copies = f" and {self.copies} unanswerable copies" if self.copies else ""
        judged = ""
        if self.strata is not None:
            judged = f" and what {self.judge} says of {sum(self.strata.rows):,}"
        return f"{self.queries - self.copies} labelled queries{copies}{groups}{judged}"

    def promises(self, confidence: float) -> bool:
        """Whether an answer of this confidence is certified: it reaches the threshold."""
        return self.threshold is not None and confidence >= self.threshold

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `Certificate(**d)` gives an equal one back."""
        values = asdict(self)
        if self.strata is None:  # as before there were judges
            del values["judge"], values["strata"]
        return values


def certify_judged(
    strata: Strata,
    *,
    judge: str,
    threshold: float,
    target: float = 0.7,
    level: float = 0.95,
    about: str = ABOUT,
) -> Certificate:
    """Certify one threshold by labels within the strata of what a judge says.

    All rows of `strata` reach `threshold`, which no label has influenced, and the labels of each
    stratum are a random sample of it. The promise holds whatever the judge does.
    """
    target, level = arrays.check_share("target", target), arrays.check_share("level", level)
    holds = strata.tail(target) <= 1 - level
    labels, right = sum(strata.labelled), sum(strata.right)
    return Certificate(
        threshold=threshold if holds else None,
        target=target,
        level=level,
        queries=labels,
        accepted=labels if holds else 0,
        right=right if holds else 0,
        labels_needed=None if holds else labels_for(strata, target, level),
        about=about,
        judge=judge,
        strata=strata,
    )


def certify(
    y: ArrayLike,
    p: ArrayLike,
    *,
    groups: Groups = None,
    target: float = 0.7,
    level: float = 0.95,
    floor: float = 0.0,
    about: str = ABOUT,
    event: str = RIGHT,
) -> Certificate:
    """Return the lowest threshold on p (n,) above which y (n,) is right at least `target` often.

    Learn-then-Test (Angelopoulos et al. 2021) by a sequence with several starts: "of the k most
    confident no more than `target` are right" is tested for rising k, until it cannot be refuted
    (see `refuted`). So the probability of a false promise is at most 1 - `level`, for any p and any
    number of tests; for groups of several rows this rests on a conjecture, which simulations
    support (`group_tails`). Equal p are accepted together. Most of that probability goes to one
    start where a test would most surely pass by p (`foreseen_place`), the rest to starts at sizes
    fixed in advance.

    No threshold below `floor` is returned. It may depend on the labels, as all tests that refute
    hold at once: if only p from it up are accepted, the promise is about rows that are accepted.

    If every row is a group of its own, the test is the exact binomial tail, and the promise is
    about new rows. If groups (n,) have several rows, it is about new groups, each of which counts
    once, with the share of its accepted rows that is right: whole groups must be exchangeable,
    their rows may depend on each other in any way.

    `about` and `event` are reported, not used. p must come from maps that were not fitted on these
    rows. Out-of-fold p work in practice, though no proof is known: a lucky fold is judged by maps
    fitted on the unluckier rest, which errs on the safe side (measured by `make promise`).
    """
    labels, values = arrays.check_y_p(y, p)
    floor = arrays.as_number("floor", floor)
    if not floor >= 0:
        raise ValueError(f"floor should be at least 0, got {floor}")
    target, level = arrays.check_share("target", target), arrays.check_share("level", level)
    order = np.argsort(-values, kind="stable")
    labels, values = labels[order], values[order]
    number, n = arrays.group_codes(groups, len(values))[order], len(values)
    n_groups = int(number.max()) + 1
    ends = np.append(np.flatnonzero(np.diff(values)), n - 1)  # of runs of equal values
    if n_groups == n:
        size, tail = np.arange(1.0, n + 1), sequence_tests.tails(labels, target)
        sizes = sequence_tests.rows_to_begin_with(target, level, n)
    else:
        tail, size = group_tails(labels, number, target)
        sizes = group_sizes(float(size[-1]))
    foreseen = sequence_tests.foreseen_place(values, size, ends, target, 1 - level)
    ends = sequence_tests.refuted(
        tail, ends, *sequence_tests.starts_of(size, ends, sizes, foreseen, 1 - level)
    )
    last = int(ends[values[ends] >= floor].max(initial=-1))
    needed = _labels_needed(labels, values, number, floor, target, level) if last < 0 else None
    return Certificate(
        threshold=None if last < 0 else float(values[last]),
        target=target,
        level=level,
        queries=n,
        accepted=last + 1,
        right=int(labels[: last + 1].sum()),
        labels_needed=needed,
        about=about,
        groups=n_groups if n_groups < n else None,
        event=event,
    )


def _labels_needed(
    labels: Floats, values: Floats, number: Ints, floor: float, target: float, level: float
) -> int | None:
    """Return `Certificate.labels_needed` of a sample by falling values (n,) without a promise."""
    from calibration.score_fitting import fit_platt

    scores = arrays.log_odds(values)
    truth = fit_platt(scores, labels).predict(scores)  # the accuracy at each confidence
    n, n_groups, reach = len(labels), int(number.max()) + 1, int((values >= floor).sum())
    if not reach:
        if n_groups >= FEW:
            return None
        reach = n  # of more labels, some may reach the floor
    places = np.unique(np.linspace(0, reach - 1, PLACES).astype(np.int64))
    units = worth = np.arange(1.0, n + 1)
    mean = np.cumsum(truth) / units
    if n_groups < n:
        mean, units, worth = expected_groups(labels, truth, number, reach)
    chance = (1 - level) * sequence_tests.FORESEEN
    times = sequence_tests.times_needed(
        mean[places], units[places], worth[places], target, chance, most=MAX_TIMES
    )
    return None if times > MAX_TIMES else int(np.ceil(max(times, LEAST_TIMES) * n))


def _checked(hits: float, n: float, level: float) -> tuple[float, float, float]:
    found, rows = arrays.finite_number("hits", hits), arrays.finite_number("n", n)
    if not 0 <= found <= rows:
        raise ValueError(f"hits must lie between 0 and n, got {hits} of {n}")
    return found, rows, arrays.check_share("level", level)


def fixed_sequence(losses: ArrayLike, groups: Groups = None, *, risk: float = 0.05) -> int:
    """Return the last setting whose mean loss is at most `risk`, with 95% confidence; -1: none.

    losses (n, m) in [0, 1]: of each row by each setting, from the safest to the riskiest.
    Learn-then-Test by fixed sequence testing (Angelopoulos et al. 2021): each setting is tested at
    the full 5%, until one fails. So a false promise about new groups (n,), each counted once, has
    at most that probability, if `mean_upper_bound` is a valid bound: proved for losses of two
    values in groups of one row, otherwise a conjecture.
    """
    table = arrays.as_floats(losses)
    if table.ndim != 2:
        raise ValueError(f"losses should be (n, m), got {table.shape}")
    risk = arrays.check_share("risk", risk)
    held = takewhile(lambda column: mean_upper_bound(column, groups) <= risk, table.T)
    return sum(1 for _ in held) - 1

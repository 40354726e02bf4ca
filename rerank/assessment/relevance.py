"""P(each passage is right) and P(one of the first k is), as consistent probabilities.

They follow from the confidence c, P(the first passage is right), and two maps: the hazard h_k,
P(the k-th passage is right | none above it is), and g_k, P(the k-th passage is right | one above it
is), as for events that may recur (Prentice, Williams and Peterson 1981). With S_1 = r_1 = c the law
of total probability gives relevance and sufficiency:

    r_k = (1 - S_{k-1}) h_k + S_{k-1} g_k        P(the k-th passage is right)
    S_k = S_{k-1} + (1 - S_{k-1}) h_k            P(one of the first k is right)

If r_k would exceed r_{k-1}, h_k and g_k are scaled down so that r_k = r_{k-1}: relevance never
rises along the ranking. So, whatever the maps, r_1 is the confidence, and S_k is at least each of
r_1, ..., r_k and at most their sum. A passage that equals one above it is right if that one is: it
adds nothing to S, and the passages below are counted without it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.arrays import log_odds
from calibration.maps import LogisticMap
from rerank.data.duplicates import distinct
from rerank.data.labels import Labelled, Labels, passage_labels
from rerank.types import Floats, Ranking

DEPTH = 10  # the largest k of sufficiency, and how far down a ranking the maps are fitted
STEP_C = 0.1  # variance of a hazard's deviation from the map of other sets
OWN_C = 1.0  # the same, from the passage's own score
INPUTS = ("score_log_odds", "below_top", "confidence_log_odds", "log_rank")


def hazard_inputs(scores: Floats, confidence: float) -> Floats:
    """The inputs of h and g for the second to the last passage, (n - 1, 4).

    `scores` (n,) are those of the ranking, n >= 1. The columns are `INPUTS`; `below_top` is the
    difference of log odds to the first passage.
    """
    odds = log_odds(scores)
    below = odds[1:]
    sure = np.full(len(below), log_odds(confidence))
    return np.column_stack([below, below - odds[0], sure, np.log(np.arange(2, len(odds) + 1))])


def fit_hazards(
    labelled: Labelled[Ranking],
    confidences: Floats,
    reference: tuple[LogisticMap | None, LogisticMap | None] = (None, None),
) -> tuple[LogisticMap, LogisticMap]:
    """The maps of h and of g: logistic regressions on the second to the tenth passages.

    h is fitted on passages with no right one above, g on passages with one above. `confidences`
    (n,) and the rankings' scores should be of maps that had not seen the query. Both are shrunk
    towards the `reference` maps of other sets or, without them, towards the passage's own score;
    then queries of one group count as what they are worth together.
    """
    inputs, right, one_above, rows = [np.zeros((0, len(INPUTS)))], [], [], []
    for row, (ranking, confidence, labels) in enumerate(
        zip(labelled.items, confidences.tolist(), passage_labels(labelled), strict=True)
    ):
        first = distinct(ranking.passages)[0][:DEPTH]
        if len(first) > 1:
            first_ten = labels[first]
            inputs.append(hazard_inputs(ranking.score[first], confidence))
            right += first_ten[1:].tolist()
            one_above += (first_ten.cumsum()[:-1] > 0).tolist()
            rows += [row] * (len(first) - 1)
    X, y, above = np.concatenate(inputs), np.array(right), np.array(one_above, dtype=np.bool_)
    groups = labelled.groups[np.array(rows, dtype=np.intp)]
    return (
        _fit(X[~above], y[~above], groups[~above], reference[0]),
        _fit(X[above], y[above], groups[above], reference[1]),
    )


def _fit(X: Floats, y: Labels, groups: NDArray[np.str_], old: LogisticMap | None) -> LogisticMap:
    """The map of y (n,) on X (n, 4), shrunk to an old one; without rows, that map itself."""
    from calibration.fitting import fit_shrunk

    if old is not None:
        return fit_shrunk(old, X, y, C=STEP_C) if len(y) else old
    if not len(y):
        return LogisticMap((1.0, 0.0, 0.0, 0.0), 0.0, (0.0,) * 4, (1.0,) * 4)
    # the passage's own score, with the inputs standardised
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1.0
    coef, bounds = (float(scale[0]), 0.0, 0.0, 0.0), (X.min(axis=0), X.max(axis=0))
    own = LogisticMap(coef, float(mean[0]), tuple(mean), tuple(scale), *map(tuple, bounds))
    return fit_shrunk(own, X, y, groups, C=OWN_C)


def relevance_and_sufficiency(
    ranking: Ranking,
    confidence: float,
    hazard: LogisticMap,
    hazard_after_hit: LogisticMap,
    max_probability: float = 1.0,
) -> tuple[Floats, Floats]:
    """P(each passage is right), (n,), and P(one of the first k is) for k = 1 to `DEPTH`, (DEPTH,).

    Both begin with `confidence`. A ranking of fewer passages keeps its last sufficiency, 0 without
    any. No sufficiency is above `max_probability`, which is what the labels can support, unless
    the confidence is.
    """
    if not len(ranking):
        return np.zeros(0), np.zeros(DEPTH)
    first, group = distinct(ranking.passages)
    x = hazard_inputs(ranking.score[first], confidence)
    relevance, sufficiency = chain(confidence, hazard.predict(x), hazard_after_hit.predict(x))
    relevance = np.minimum.accumulate(relevance[group])
    most = max(max_probability, confidence)
    sufficiency = np.minimum(sufficiency, most)[np.maximum.accumulate(group)]
    return relevance, np.append(sufficiency, np.full(DEPTH, sufficiency[-1]))[:DEPTH]


def chain(confidence: float, hazard: Floats, hazard_after_hit: Floats) -> tuple[Floats, Floats]:
    """Relevance r (n,) and sufficiency S (n,), from the confidence, h and g (n - 1,) in [0, 1]."""
    relevance, sufficiency = [confidence], [confidence]
    for h, g in zip(hazard.tolist(), hazard_after_hit.tolist(), strict=True):
        none, one = (1 - sufficiency[-1]) * h, sufficiency[-1] * g
        right = min(none + one, relevance[-1])
        scale = right / (none + one) if right > 0 else 0.0
        relevance.append(right)
        sufficiency.append(min(sufficiency[-1] + scale * none, 1.0))
    return np.array(relevance), np.array(sufficiency)

"""P(each passage is right), and P(one of the first k is): probabilities that agree with each other.

They follow from two: the confidence c, P(the first passage is right), and a map of the hazard,
P(the k-th passage is right | what stands above it), which is told by h_k where none above is right
and by g_k where one is (a recurrent-event hazard: Prentice, Williams and Peterson 1981). With
S_1 = r_1 = c the law of total probability gives relevance and sufficiency:

    r_k = (1 - S_{k-1}) h_k + S_{k-1} g_k        P(the k-th passage is right)
    S_k = S_{k-1} + (1 - S_{k-1}) h_k            P(one of the first k is right)

Where r_k would exceed r_{k-1}, h_k and g_k are scaled down to r_k = r_{k-1}: relevance never rises
along the ranking. So, whatever the map, r_1 is the confidence, and S_k is at least each of
r_1, ..., r_k and at most their sum.
"""

from __future__ import annotations

import numpy as np

from calibration.arrays import log_odds
from calibration.maps import LogisticMap
from rerank.data.labels import Labelled, passage_labels
from rerank.types import Bools, Floats, Ranking

DEPTH = 10  # the largest k of sufficiency, and how far down a ranking the hazard is fitted
INPUTS = ("score_log_odds", "below_top", "confidence_log_odds", "log_rank", "one_above")


def hazard_inputs(scores: Floats, confidence: float, one_above: Bools) -> Floats:
    """What the hazards of the second to the last passage are computed from, (n - 1, 5).

    `scores` (n,) are those of the ranking, n >= 1, and `one_above` (n - 1,) says where one of the
    passages above is right. The columns are `INPUTS`; `below_top` is the difference of log odds to
    the first passage.
    """
    odds = log_odds(scores)
    below = odds[1:]
    return np.column_stack(
        [
            below,
            below - odds[0],
            np.full(len(below), log_odds(confidence)),
            np.log(np.arange(2, len(odds) + 1)),
            one_above,
        ]
    )


def fit_hazard(labelled: Labelled[Ranking], confidences: Floats) -> LogisticMap:
    """The map of the hazards: one logistic regression of the second to the tenth passages.

    It maximises the likelihood of the labels of each ranking, given its first. `confidences` (n,)
    and the rankings' scores should be of maps that had not seen the query. Where no query has two
    passages there is nothing to learn, and every hazard is a half.
    """
    from calibration.fitting import fit_logistic

    inputs: list[Floats] = []
    right: list[int] = []
    rows = zip(labelled.items, confidences.tolist(), passage_labels(labelled), strict=True)
    for ranking, confidence, labels in rows:
        if len(ranking) > 1:
            first_ten = labels[:DEPTH]
            one_above = first_ten.cumsum()[:-1] > 0
            inputs.append(hazard_inputs(ranking.score[:DEPTH], confidence, one_above))
            right += first_ten[1:].tolist()
    if not right:
        return LogisticMap((0.0,) * len(INPUTS), 0.0, (0.0,) * len(INPUTS), (1.0,) * len(INPUTS))
    return fit_logistic(np.concatenate(inputs), right)


def relevance_and_sufficiency(
    scores: Floats, confidence: float, hazard: LogisticMap
) -> tuple[Floats, Floats]:
    """P(each passage is right), (n,), and P(one of the first k is) for k = 1 to `DEPTH`, (DEPTH,).

    `scores` (n,) are those of the ranking. Relevance never rises, sufficiency never falls; both
    begin with `confidence`. A ranking of fewer passages keeps its last sufficiency; without any,
    sufficiency is 0.
    """
    n = len(scores)
    if not n:
        return np.zeros(0), np.zeros(DEPTH)
    none, one = np.zeros(n - 1, dtype=np.bool_), np.ones(n - 1, dtype=np.bool_)
    rows = [hazard_inputs(scores, confidence, one_above) for one_above in (none, one)]
    first, another = np.split(hazard.predict(np.concatenate(rows)), 2)
    relevance, found = chain(confidence, first, another)
    return relevance, np.append(found, np.full(max(0, DEPTH - n), found[-1]))[:DEPTH]


def chain(confidence: float, first: Floats, another: Floats) -> tuple[Floats, Floats]:
    """Relevance r (n,) and sufficiency S (n,) from the confidence and the hazards, (n - 1,) each.

    `first` holds h_2, ..., h_n and `another` g_2, ..., g_n, all in [0, 1]: see the top of this
    file.
    """
    relevance, found = [confidence], [confidence]
    for h, g in zip(first.tolist(), another.tolist(), strict=True):
        none, one = (1 - found[-1]) * h, found[-1] * g
        right = min(none + one, relevance[-1])
        kept = right / (none + one) if right > 0 else 0.0
        relevance.append(right)
        found.append(min(found[-1] + kept * none, 1.0))
    return np.array(relevance), np.array(found)

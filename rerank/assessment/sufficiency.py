"""P(one of the first k passages is right), for every k: it never falls as k grows.

A discrete-time hazard (Singer & Willett 1993): of a query whose first k - 1 passages are wrong, the
k-th is right with probability h_k. h_1 is the confidence; the others come from one logistic map of
the passage's relevance, the confidence and k. Sufficiency at k is 1 - (1 - h_1) ... (1 - h_k).
"""

from __future__ import annotations

import numpy as np

from calibration.arrays import log_odds
from calibration.maps import LogisticMap
from rerank.data.labels import Labelled, passage_labels
from rerank.types import Floats, Ranking

DEPTH = 10  # the largest k
INPUTS = ("relevance_log_odds", "confidence_log_odds", "log_k")


def hazard_inputs(ranking: Ranking, confidence: float) -> Floats:
    """What the hazards of the second to the tenth passage are computed from, shape (m, 3).

    m is 9, or less where the ranking is shorter; the columns are `INPUTS`.
    """
    relevance = ranking.relevance[1:DEPTH]
    m = len(relevance)
    return np.column_stack(
        [log_odds(relevance), np.full(m, log_odds(confidence)), np.log(np.arange(2, m + 2))]
    )


def fit_hazard(labelled: Labelled[Ranking], confidences: Floats) -> LogisticMap:
    """The map of the hazards, fitted on every passage above which all are wrong.

    `confidences` (n,) and the rankings' relevance should be of maps that had not seen the query.
    Where no query's first passage is wrong there is nothing to learn, and every hazard is a half.
    """
    from calibration.fitting import fit_logistic

    inputs: list[Floats] = []
    right: list[int] = []
    rows = zip(labelled.items, confidences.tolist(), passage_labels(labelled), strict=True)
    for ranking, confidence, labels in rows:
        first_ten = labels[:DEPTH].tolist()
        first = first_ten.index(1) if 1 in first_ten else len(first_ten)
        inputs.append(hazard_inputs(ranking, confidence)[:first])
        right += first_ten[1 : first + 1]
    if not right:
        return LogisticMap((0.0,) * len(INPUTS), 0.0, (0.0,) * len(INPUTS), (1.0,) * len(INPUTS))
    return fit_logistic(np.concatenate(inputs), right)


def sufficiencies(ranking: Ranking, confidence: float, hazard: LogisticMap) -> Floats:
    """P(one of the first k is right) for k = 1 to `DEPTH`, shape (DEPTH,); the first is
    `confidence`. A ranking of fewer passages keeps its last value.
    """
    wrong = 1 - hazard.predict(hazard_inputs(ranking, confidence))
    found = 1 - (1 - confidence) * np.cumprod(np.append(1.0, wrong))
    found[0] = confidence  # to the last bit, below which nothing rounds
    found = np.maximum.accumulate(found)
    return np.append(found, np.full(DEPTH - len(found), found[-1]))

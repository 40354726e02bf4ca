"""Certify the sufficiency, and choose where to stop handing on passages.

Takes rankings ordered by maps that have not seen them. Only the model that is kept needs this:
folds are measured without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.maps import LogisticMap
from calibration.selection import grouped_folds
from calibration.thresholds import Certificate, certify, fixed_sequence
from rerank.assessment.relevance import DEPTH, fit_hazards, relevance_and_sufficiency
from rerank.config import Config
from rerank.data.labels import Labelled, Labels, hits
from rerank.fitting.unanswerable import copies_in
from rerank.types import Floats, Ranking

HOLDS = "have an answer among the first {} passages"
LOST = 0.05  # share of all questions that may lose an answer which the first ten passages hold
THRESHOLDS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)

Hazards = tuple[LogisticMap | None, LogisticMap | None]  # pooled ones, if there are any


def certify_context(
    ordered: Labelled[Ranking],
    confidences: Floats,
    config: Config,
    reference: Hazards,
    *,
    max_probability: float,
    units: NDArray[np.str_],
    about: str,
) -> tuple[Certificate, float | None]:
    """The certified sufficiency, and the stopping threshold (see `choose_stopping_threshold`).

    `confidences` (n,) and the orders are of maps that had not seen the query, and no confidence of
    their map is above `max_probability`. `about` names the questions that the certificate is about,
    and `units` (n,) are what the labels sampled at random.
    """
    right_within, k = hits(ordered, depth=DEPTH), config.sufficiency_k
    sufficiency = _cross_fit_sufficiency(ordered, confidences, config, reference, max_probability)
    certificate = certify(
        right_within[:, k - 1],
        sufficiency[:, k - 1],
        groups=units,
        target=config.thresholds.sufficient,
        floor=config.thresholds.sufficient,
        about=about,
        event=HOLDS.format(k),
    )
    originals = ~copies_in(ordered)
    stop = choose_stopping_threshold(
        right_within[originals], sufficiency[originals], units[originals]
    )
    return certificate, stop


def choose_stopping_threshold(
    right_within: Labels, sufficiency: Floats, groups: NDArray[Any]
) -> float | None:
    """The lowest sufficiency at which no more passages need to be handed on; None: no guarantee.

    `right_within` (n, d) is 1 if one of the first k passages is right, for k = 1 to d, and
    `sufficiency` (n, d) its probability by maps that have not seen the query. The passages handed
    on are the first k, for the lowest k at which the sufficiency reaches the threshold, else all d.
    A question is lost if the d passages hold an answer and those handed on do not. At most a share
    of `LOST` of new questions is lost, with 95% confidence: see
    `calibration.thresholds.fixed_sequence`.
    """
    losses = [
        right_within[:, -1] - _answer_in_context(right_within, sufficiency, t) for t in THRESHOLDS
    ]
    place = fixed_sequence(np.column_stack(losses), groups, risk=LOST)
    return None if place < 0 else THRESHOLDS[place]


def _answer_in_context(right_within: Labels, sufficiency: Floats, threshold: float) -> Labels:
    """1 if the passages handed on hold an answer, (n,)."""
    reached = sufficiency >= threshold
    k = np.where(reached.any(axis=1), reached.argmax(axis=1), right_within.shape[1] - 1)
    return np.asarray(right_within[np.arange(len(right_within)), k], dtype=np.int64)


def _cross_fit_sufficiency(
    ordered: Labelled[Ranking],
    confidences: Floats,
    config: Config,
    reference: Hazards,
    max_probability: float,
) -> Floats:
    """Sufficiency (n, 10) by hazards that were not fitted on the query's group."""
    folds = grouped_folds(ordered.groups, config.folds, random_state=config.seed)
    hazards = {
        fold: fit_hazards(ordered.where(folds != fold), confidences[folds != fold], reference)
        for fold in set(folds.tolist())
    }
    return np.array(
        [
            relevance_and_sufficiency(ranking, confidence, *hazards[fold], max_probability)[1]
            for ranking, confidence, fold in zip(
                ordered.items, confidences.tolist(), folds.tolist(), strict=True
            )
        ]
    )

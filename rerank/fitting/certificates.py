"""The certificate of the sufficiency, where to stop handing on passages, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.maps import LogisticMap
from calibration.selection import grouped_folds
from calibration.thresholds import Certificate, certify, fixed_sequence
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.relevance import fit_hazards, relevance_and_sufficiency
from rerank.config import Config
from rerank.data.labels import Labelled, Labels
from rerank.fitting.scored_plan import copies_in
from rerank.types import Floats, Ranking

ALL_ANSWERABLE = (
    "All {n} labelled queries have an answer here. They say nothing about queries without one: "
    "the confidence of these may be too high, and a certificate would not hold. Label such queries "
    "too, in the share that you expect from your users, and list them in splits/<split>.txt; or "
    "let unanswerable copies stand in for them (--expected-unanswerable)."
)
NONE_ANSWERABLE = (
    "None of the {n} labelled queries has an answer here: nothing can be certified. Label queries "
    "that the passages answer."
)
TRAINED_ON_DOCUMENTS = (
    "A model was trained on other queries about the same documents, and knows these better than it "
    "will know new ones: the confidence is likely to be too high, and all figures too good. Keep "
    "documents apart from its training, or take another --reranker."
)
NOT_AT_RANDOM = (
    "The labels are not of a random sample of questions: they were drawn by their confidence, or "
    "evenly, but different shares of several files, or people chose which answers to judge. They "
    "correct the confidence, but a certificate needs questions drawn at random, from one file or "
    "the same share of each (`rerank label --draw even`)."
)
KNOWN_GROUPS = (
    "{count} of {n} labels are of groups (`metadata.group`) that the model was fitted or "
    "recalibrated on, or name none: it looks better there than on new groups. The confidence "
    "follows the labels; a certificate needs labels of at least {least} questions of new groups."
)
KNOWN_GROUPS_LEFT_OUT = (
    "{count} of {n} labels of the mode {mode} are of groups (`metadata.group`) that the model was "
    "fitted or recalibrated on, or name none: the confidence follows them, and they are left out "
    "of what is certified."
)
CUT_FROM_SEARCH = (
    "The labelled lists were cut from our own search: they certify nothing about lists that "
    "callers bring. Label answers to such lists, and give the labels with their `passages` to "
    "`rerank recalibrate`."
)

HOLDS = "have an answer among the first {} passages"
LOST = 0.05  # share of all questions that may lose an answer which the first ten passages hold
THRESHOLDS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)

Hazards = tuple[LogisticMap | None, LogisticMap | None]  # pooled ones, if there are any


def certify_context(
    ordered: Labelled[Ranking],
    confidences: Floats,
    right_within: Labels,
    config: Config,
    reference: Hazards,
    *,
    max_probability: float,
    units: NDArray[np.str_],
    about: str,
) -> tuple[Certificate, float | None]:
    """The certified sufficiency, and the stopping threshold (see `choose_stopping_threshold`).

    `confidences` (n,) and the orders are of maps that had not seen the query, and no confidence of
    their map is above `max_probability`; `right_within` (n, DEPTH) are the `hits`. `about` names
    the questions, and `units` (n,) what the labels sampled at random.
    """
    # the sufficiency (n, 10) by hazards that were not fitted on the query's group
    folds = grouped_folds(ordered.groups, config.folds, random_state=config.seed)
    hazards = {
        fold: fit_hazards(ordered.where(folds != fold), confidences[folds != fold], reference)
        for fold in set(folds.tolist())
    }
    rows = zip(ordered.items, confidences.tolist(), folds.tolist(), strict=True)
    sufficiency = np.array(
        [relevance_and_sufficiency(r, p, *hazards[fold], max_probability)[1] for r, p, fold in rows]
    )
    k = config.sufficiency_k
    target, event = config.thresholds.sufficient, HOLDS.format(k)
    certificate = certify(
        right_within[:, k - 1],
        sufficiency[:, k - 1],
        groups=units,
        target=target,
        floor=target,
        about=about,
        event=event,
    )
    kept = ~copies_in(ordered)
    stop = choose_stopping_threshold(right_within[kept], sufficiency[kept], units[kept])
    return certificate, stop


def choose_stopping_threshold(
    right_within: Labels, sufficiency: Floats, groups: NDArray[Any]
) -> float | None:
    """The lowest sufficiency at which no more passages need to be handed on; None: no guarantee.

    `right_within` (n, d) is 1 if one of the first k passages is right, for k = 1 to d, and
    `sufficiency` (n, d) its probability by maps that have not seen the query. The passages handed
    on are the first k, for the lowest k at which the sufficiency reaches the threshold, else all d.
    At most a share of `LOST` of new questions loses an answer that the d passages hold, with 95%
    confidence: see `calibration.thresholds.fixed_sequence`.
    """
    losses = []
    for threshold in THRESHOLDS:
        reached = sufficiency >= threshold
        k = np.where(reached.any(axis=1), reached.argmax(axis=1), right_within.shape[1] - 1)
        losses.append(right_within[:, -1] - right_within[np.arange(len(k)), k])
    place = fixed_sequence(np.column_stack(losses), groups, risk=LOST)
    return None if place < 0 else THRESHOLDS[place]


def require_both_kinds(certificate: Certificate, answered: Sequence[bool]) -> Certificate:
    """The certificate; refused, unless some queries are `answered` (n,) and some are not."""
    if any(answered) and not all(answered):
        return certificate
    reason = ALL_ANSWERABLE if any(answered) else NONE_ANSWERABLE
    return refused(certificate, reason.format(n=len(answered)))


def refused(certificate: Certificate, reason: str) -> Certificate:
    """The certificate, changed to promise nothing, for this reason and those that it had."""
    if reason in certificate.refused:
        reason = ""
    reasons = f"{certificate.refused} {reason}".strip()
    nothing: dict[str, Any] = {"threshold": None, "accepted": 0, "right": 0, "labels_needed": None}
    return replace(certificate, **nothing, refused=reasons)


def refuse_certificates(maps: FittedMaps, reason: str) -> FittedMaps:
    """The maps, with all their certificates refused: see `refused`."""
    names = ("certificate", "documents_certificate", "context_certificate")
    given = {name: getattr(maps, name) for name in names}
    none: dict[str, Any] = {n: refused(one, reason) if one else None for n, one in given.items()}
    return replace(maps, **none, stopping_threshold=None)

"""The progress of labelling: accuracy so far, labels still missing, agreement of annotators.

Questions in, sentences out. It knows nothing of a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from calibration.label_selection import weighted_mean
from calibration.pairs import Agreement, cohens_kappa
from calibration.thresholds import ABOUT, certify, percent
from rerank.assessment.decisions import CALIBRATED_FROM
from rerank.labelling.beir_export import right_of
from rerank.labelling.state import Question, chosen_without_weights, differ, weights

EVERY = 10  # labels between two reports
NOT_EVEN = (
    "These questions were drawn with different chances, so their labels certify nothing; for a "
    "certificate draw evenly, from one file or the same share of each: --draw even."
)

OF_ANOTHER = (
    "The top passages and their confidence are of another model, or of an earlier version of this "
    "one: `rerank calibrate` measures these labels."
)


def progress_sentences(
    questions: Sequence[Question],
    groups: Mapping[str, str],
    *,
    about: str = ABOUT,
    calibrated: bool,
    version: str = "",
    target: float,
    partly_right: bool,
) -> list[str]:
    """How often the model's top passages are right so far, and how many more labels are needed.

    groups: of labelled questions by id (`rerank.labelling.beir_export.groups_of`); one without is a
    group of its own. about: the questions that a certificate by these groups is about. target: the
    share of right answers among accepted ones that a certificate should guarantee. version: the
    model's; of questions that are known to be drawn by another one, no confidence is told.
    """
    weight, chosen = weights(questions), chosen_without_weights(questions)
    if not any(weight):  # some were proposed: each stands for itself
        weight = [1.0] * len(questions)
    pairs = [pair for pair in zip(questions, weight, strict=True) if pair[0].done]
    done = [question for question, _ in pairs]
    if not done:
        return []
    right = [right_of(question, partly_right=partly_right) for question in done]
    y = np.array([q.top in found for q, found in zip(done, right, strict=True)], dtype=np.int64)
    p, w = np.array([q.confidence for q in done]), np.array([stands_for for _, stands_for in pairs])
    number = np.array([groups.get(q.query_id, q.query_id) for q in done])
    found = weighted_mean(y, w, number)
    interval = "" if np.isnan(found.low) else f" (95% interval {found.low:.0%} to {found.high:.0%})"
    sentence = f"{len(done)} labelled: the top passage is right for {found.mean:.0%}{interval}"
    if chosen:
        sentence += " of these, which were drawn by confidence and stand for no others"
    if calibrated:
        even = not chosen and not differ(weight)
        if {q.drawn_by for q in done} - {"", version}:
            return [f"{sentence}.", OF_ANOTHER, *([] if even else [NOT_EVEN])]
        mean = float((w * p).sum() / w.sum())
        return [
            f"{sentence}; the model's confidence is {mean:.0%} on average.",
            _certificate(y, p, number, target, about) if even else NOT_EVEN,
        ]
    return [f"{sentence}.", _to_calibrate(y, right)]


def _to_calibrate(y: np.ndarray, right: Sequence[object]) -> str:
    """What is still missing for the first calibration."""
    missing = CALIBRATED_FROM - len(y)
    if missing > 0:
        return f"{missing} more are needed to calibrate, some of them with no answer."
    if all(y) or not any(y):
        what = "right" if all(y) else "wrong"
        return f"All top passages are {what}: a calibration needs labels of both kinds."
    if all(right):
        return "Enough to calibrate, but no question is without an answer: nothing is certified."
    return "Enough to calibrate; with more labels the confidence becomes surer."


def _certificate(
    y: np.ndarray, p: np.ndarray, groups: np.ndarray, target: float, about: str
) -> str:
    """What a certificate would need, if accuracy stays as on these labels."""
    found = certify(y, p, groups=groups, target=target, floor=target)
    promise = f"a threshold with at least {percent(target)} of {about} right"
    if found.threshold is not None:
        return f"These are enough to certify {promise}, if they are a uniform sample."
    if found.too_few:
        return f"These are too few to tell how many would certify {promise}."
    if found.labels_missing is None:
        return f"More labels like these would not certify {promise}: better scores are needed."
    return f"About {found.labels_missing:,} more labels would certify {promise}."


def agreements(
    questions: Sequence[Question], of: str | None = None
) -> dict[tuple[str, str], Agreement]:
    """Cohen's kappa of each pair of people over the passages that both judged, by question.

    With `of`, only the pairs with this person.
    """
    names = sorted({name for question in questions for name in question.people})
    agreements = {}
    for pair in combinations(names, 2):
        judged = [[q.person(name).grades for name in pair] for q in questions]
        both = [
            (a[doc_id], b[doc_id], question.query_id)
            for question, (a, b) in zip(questions, judged, strict=True)
            for doc_id in a
            if doc_id in b
        ]
        if both and of in (None, *pair):
            agreements[pair] = cohens_kappa(*zip(*both, strict=True))
    return agreements


def agreement_sentence(names: tuple[str, str], found: Agreement) -> str:
    """An agreement in words."""
    people = " and ".join(names)
    sentence = f"{people} agree on {found.same:.0%} of {found.n} passages; Cohen's kappa "
    if np.isnan(found.kappa):
        return f"{sentence}is not defined: every passage has the same label."
    if np.isnan(found.low):
        return f"{sentence}{found.kappa:.2f}, its interval is not known."
    return f"{sentence}{found.kappa:.2f} (95% interval {found.low:.2f} to {found.high:.2f})."

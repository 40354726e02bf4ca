"""The progress of labelling: accuracy so far, labels still missing, agreement, and the set.

It is written in the BEIR layout. A passage is right, with grade 2, if all who judged it say so. One
that answers partly is listed in the metadata `partly`, and is right with grade 1 if the caller
wants that. Wrong ones are listed in `judged_wrong`, and those on which people disagree in
`disputed`; the lower judgement counts. It knows nothing of models and of a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from calibration.label_selection import weighted_mean
from calibration.pairs import Agreement, cohens_kappa
from calibration.thresholds import ABOUT, certify
from rerank.assessment.decisions import CALIBRATED_FROM
from rerank.data.beir import LabelledFiles
from rerank.data.grouping import grouped
from rerank.data.labelled_set import JUDGED_WRONG, LabelledSet
from rerank.data.labels import CHOSEN, DRAWN_BY, WEIGHT
from rerank.labelling.state import Question, chosen_without_weights, differ, weights
from rerank.types import Passage, Query

SPLIT = "test"
PARTLY, DISPUTED = "partly", "disputed"  # metadata of a query: ids of passages
VERDICT_SHOWN = "verdict_shown"  # metadata: true if a judge's verdict was shown to who labelled it
RIGHT_GRADE, PARTLY_GRADE = 2.0, 1.0


def labels_of(questions: Sequence[Question], *, partly_right: bool) -> LabelledFiles:
    """The queries that a person is done with, and their qrels, in one split, without a corpus.

    `metadata.weight` and `metadata.drawn_by` are set if the questions are a sample with different
    weights, `metadata.chosen` if they were drawn by confidence and are no sample, because some are
    proposed.
    """
    weight = weights(questions)
    weighted, chosen = differ(weight), chosen_without_weights(questions)
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, float]] = {}
    for question, stands_for in zip(questions, weight, strict=True):
        if not question.done or question.proposed:
            continue
        right = right_of(question, partly_right=partly_right)
        metadata: dict[str, Any] = dict(question.metadata)
        sampled = {WEIGHT: stands_for, DRAWN_BY: question.drawn_by}
        metadata |= sampled if weighted else {CHOSEN: True} if chosen else {}
        grades = question.grades
        for key, grade in ((JUDGED_WRONG, "wrong"), (PARTLY, "partly")):
            metadata |= {key: ids} if (ids := [d for d in grades if grades[d] == grade]) else {}
        metadata |= {DISPUTED: ids} if (ids := disputed(question)) else {}
        metadata |= {VERDICT_SHOWN: True} if question.verdict_shown else {}
        queries[question.query_id] = Query(question.text, question.query_id, metadata)
        if right:
            qrels[question.query_id] = right
    return LabelledFiles({}, queries, qrels, {SPLIT: tuple(queries)})


def groups_of(
    questions: Sequence[Question], find: Callable[[str], Passage | None], *, partly_right: bool
) -> tuple[dict[str, str], str]:
    """The group of each query of `labels_of`, by id, and what a certificate by these is about.

    See `rerank.data.grouping.groupings`. `find` gives a passage by its id.
    """
    made = labels_of(questions, partly_right=partly_right)
    named = sorted({doc_id for grades in made.qrels.values() for doc_id in grades})
    passages = {doc_id: passage for doc_id in named if (passage := find(doc_id))}
    qrels = {i: {d: g for d, g in of.items() if d in passages} for i, of in made.qrels.items()}
    ids = list(made.queries)
    labelled = grouped(LabelledSet(passages, made.queries, qrels, made.splits), ids)
    assert labelled.grouping is not None
    return {i: labelled.group(i) for i in ids}, labelled.grouping.about


def right_of(question: Question, *, partly_right: bool) -> dict[str, float]:
    """The grades of the passages that count as right."""
    counted = {"right": RIGHT_GRADE} | ({"partly": PARTLY_GRADE} if partly_right else {})
    return {d: counted[grade] for d, grade in question.grades.items() if grade in counted}


def disputed(question: Question) -> list[str]:
    """The passages on which those who are done disagree."""
    graded = [person.grades for person in question.people.values() if person.done]
    every = dict.fromkeys(doc_id for grades in graded for doc_id in grades)
    return [d for d in every if len({grades[d] for grades in graded if d in grades}) > 1]


EVERY = 10  # labels between two reports
NOT_EVEN = (
    "These questions were drawn with different chances, so their labels certify nothing; for a "
    "certificate draw evenly, from one file or the same share of each: --draw even."
)

ANOTHER_MODEL = (
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

    groups: of labelled questions by id (`rerank.labelling.progress.groups_of`); one without is a
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
            return [f"{sentence}.", ANOTHER_MODEL, *([] if even else [NOT_EVEN])]
        mean = float((w * p).sum() / w.sum())
        certificate = certify(y, p, groups=number, target=target, floor=target, about=about)
        return [
            f"{sentence}; the model's confidence is {mean:.0%} on average.",
            certificate.brief if even else NOT_EVEN,
        ]
    if len(y) < CALIBRATED_FROM:
        missing = CALIBRATED_FROM - len(y)
        then = f"{missing} more are needed to calibrate, some of them with no answer."
    elif all(y) or not any(y):
        what = "right" if all(y) else "wrong"
        then = f"All top passages are {what}: a calibration needs labels of both kinds."
    elif all(right):
        then = "Enough to calibrate, but no question is without an answer: nothing is certified."
    else:
        then = "Enough to calibrate; with more labels the confidence becomes surer."
    return [f"{sentence}.", then]


def agreements(
    questions: Sequence[Question], of: str | None = None
) -> dict[tuple[str, str], Agreement]:
    """Cohen's kappa of each pair of people over the passages that both judged, by question.

    With `of`, only the pairs with this person.
    """
    agreements = {}
    for pair in combinations(sorted({name for q in questions for name in q.people}), 2):
        both: list[tuple[str, str, str]] = []
        for question in questions:
            a, b = (question.person(name).grades for name in pair)
            both += [(a[d], b[d], question.query_id) for d in a if d in b]
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

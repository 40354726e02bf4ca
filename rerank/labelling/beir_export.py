"""Writes judgements as a labelled set in the BEIR layout. It knows nothing of models.

A passage is right, with grade 2, if all who judged it say so. One that answers partly is listed in
the metadata `partly`, and is right with grade 1 if the caller wants that. Wrong ones are listed in
`judged_wrong`, and those on which people disagree in `disputed`; the lower judgement counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rerank.data.beir import LabelledFiles, write_labels
from rerank.data.grouping import groupings
from rerank.data.labelled_set import JUDGED_WRONG, LabelledSet
from rerank.data.weights import CHOSEN, DRAWN_BY, WEIGHT
from rerank.labelling.state import Question, chosen_without_weights, differ, weights
from rerank.types import Passage, Query

SPLIT = "test"
PARTLY, DISPUTED = "partly", "disputed"  # metadata of a query: ids of passages
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
        lists = {
            JUDGED_WRONG: [d for d, grade in question.grades.items() if grade == "wrong"],
            PARTLY: [d for d, grade in question.grades.items() if grade == "partly"],
            DISPUTED: disputed(question),
        }
        metadata |= {key: ids for key, ids in lists.items() if ids}
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
    qrels = {
        i: {d: grade for d, grade in grades.items() if d in passages}
        for i, grades in made.qrels.items()
    }
    ids = list(made.queries)
    plain = LabelledSet(passages, made.queries, qrels, made.splits)
    grouping = next(groupings(plain, ids))
    labelled = replace(plain, grouping=grouping)
    return {i: labelled.group(i) for i in ids}, grouping.about


def right_of(question: Question, *, partly_right: bool) -> dict[str, float]:
    """The grades of the passages that count as right."""
    counted = {"right": RIGHT_GRADE} | ({"partly": PARTLY_GRADE} if partly_right else {})
    return {d: counted[grade] for d, grade in question.grades.items() if grade in counted}


def disputed(question: Question) -> list[str]:
    """The passages on which those who are done disagree."""
    graded = [person.grades for person in question.people.values() if person.done]
    every = dict.fromkeys(doc_id for grades in graded for doc_id in grades)
    return [d for d in every if len({grades[d] for grades in graded if d in grades}) > 1]


def write_set(questions: Sequence[Question], folder: Path, *, partly_right: bool) -> int:
    """Write queries, qrels and the split beside the corpus; return how many are labelled."""
    labels = labels_of(questions, partly_right=partly_right)
    write_labels(labels, folder)
    return len(labels.queries)

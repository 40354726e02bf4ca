"""Copies of labelled queries whose answers are taken out of the index: questions without an answer.

Where all labelled queries have an answer here, labels teach no doubt. A copy is the same question,
asked of the same passages less those that are right for it and their near duplicates, and scored
anew. It stays in the group of its original, and enough copies are made for the share of questions
without an answer that is expected. Right passages that nobody labelled stay in, and make a copy
more wrong than it is: the model then errs towards doubt. It knows nothing of maps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rerank.assessment.pipeline import Pipeline
from rerank.data.labels import Grades, Labelled
from rerank.data.near_duplicates import near_duplicates
from rerank.types import Candidates, Passage, Query

FAIR_NUMBER = 20
"""Labelled queries without an answer from which on they speak for themselves, and none is made."""

TAKEN_OUT = "answers_taken_out"  # metadata of a copy: true


def is_copy(query: Query) -> bool:
    """Whether the answers of this labelled query were taken out."""
    return TAKEN_OUT in query.metadata


def copies_wanted(answered: Sequence[bool], share: float) -> int:
    """How many copies make queries without an answer a `share` of all, in [0, 1).

    answered: one a labelled query, whether any passage is right for it. At most one copy each of
    those that are; none where the others are the share already.

    >>> copies_wanted([True] * 40, 0.2)
    10
    """
    n, able = len(answered), sum(answered)
    wanted = (share * n - (n - able)) / (1 - share)
    return min(max(0, round(wanted)), able)


def mixture(about: str, labelled: Labelled[Any]) -> str:
    """The questions that a promise is `about`, with the share that copies give the unanswerable."""
    copies = sum(is_copy(item.query) for item in labelled.items)
    if not copies:
        return about
    share = sum(not grades for grades in labelled.grades) / len(labelled)
    return f"{about}, {share:.0%} of them without an answer here (expected, not seen)"


def speak_for_themselves(grades: Sequence[Grades]) -> bool:
    """Whether the queries fitted on hold `FAIR_NUMBER` without an answer: then none is copied."""
    return sum(not right for right in grades) >= FAIR_NUMBER


def with_copies(pipeline: Pipeline, found: Labelled[Candidates]) -> Labelled[Candidates]:
    """The labelled candidates, and behind them as many copies as `expected_unanswerable` asks for.

    Which queries are copied is drawn by their words, whatever their order.
    """
    answered = [bool(grades) for grades in found.grades]
    wanted = copies_wanted(answered, pipeline.config.expected_unanswerable)
    seed = pipeline.config.seed
    able = sorted(np.flatnonzero(answered).tolist(), key=lambda i: _drawn(found, i, seed))
    rows = sorted(able[:wanted])
    if not rows:
        return found
    copies = pipeline.retrieve_without(
        [_copy(found.items[i].query) for i in rows],
        [answers(found.items[i].passages, found.grades[i]) for i in rows],
    )
    return Labelled(
        [*found.items, *copies],
        np.concatenate([found.groups, found.groups[rows]]),
        [*found.grades, *({} for _ in rows)],
    )


def answers(passages: Sequence[Passage], grades: Grades) -> frozenset[str]:
    """Ids of the right passages, and of those among `passages` that are nearly the same."""
    ids = [passage.doc_id for passage in passages]
    alike = [(ids[a], ids[b]) for a, b in near_duplicates([p.text for p in passages])]
    found, before = set(grades), 0
    while len(found) > before:
        before = len(found)
        found.update(*(pair for pair in alike if not found.isdisjoint(pair)))
    return frozenset(found)


def _copy(query: Query) -> Query:
    metadata = {**query.metadata, TAKEN_OUT: True}
    return replace(query, query_id=f"{query.query_id} (answers taken out)", metadata=metadata)


def _drawn(found: Labelled[Candidates], row: int, seed: int) -> tuple[str, str]:
    query = found.items[row].query
    return hashlib.sha256(f"{seed} {query.text}".encode()).hexdigest(), query.query_id

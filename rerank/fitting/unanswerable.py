"""Unanswerable queries, made from labelled ones by taking their answers out of the index.

If all labelled queries have an answer, a model never sees an unanswerable one. A copy is the same
query over the same passages, without those that are right for it and their near duplicates, and is
scored again. It stays in the group of its original. Enough copies are made to reach the expected
share of unanswerable queries. Right passages that nobody labelled stay in, so a copy can look more
wrong than it is: the model then errs towards doubt. It knows nothing of maps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rerank.assessment.pipeline import Pipeline
from rerank.data.duplicates import near_duplicates
from rerank.data.labels import Grades, Labelled
from rerank.types import Bools, Candidates, Passage, Query

ENOUGH_UNANSWERABLE = 20  # labelled queries without an answer from which on no copies are made

ANSWERS_TAKEN_OUT = "answers_taken_out"  # metadata of a copy: true


def copies_in(labelled: Labelled[Any]) -> Bools:
    """Which of the labelled queries (n,) are copies, whose answers were taken out."""
    return np.array([ANSWERS_TAKEN_OUT in i.query.metadata for i in labelled.items], dtype=np.bool_)


def copies_wanted(answered: Sequence[bool], share: float) -> int:
    """How many copies make unanswerable queries a `share` of all, in [0, 1).

    answered: for each labelled query, whether any passage is right for it. There is at most one
    copy of each answered query, and none if the others are the share already.

    >>> copies_wanted([True] * 40, 0.2)
    10
    """
    n, answerable = len(answered), sum(answered)
    wanted = (share * n - (n - answerable)) / (1 - share)
    return min(max(0, round(wanted)), answerable)


def missed_share(grades: Sequence[Grades], share: float) -> str:
    """A note if copies of the labelled queries cannot reach the `share`; otherwise ""."""
    answered = [bool(right) for right in grades]
    copies = copies_wanted(answered, share)
    reached = (len(answered) - sum(answered) + copies) / (len(answered) + copies)
    if has_enough_unanswerable(grades) or reached > share - 0.01:
        return ""
    return (
        f"{reached:.0%} of the queries fitted on have no answer, not the {share:.0%} of "
        "`expected_unanswerable` (--expected-unanswerable), because each answerable one gives one "
        "copy at most; label queries that nothing answers"
    )


def described_mixture(about: str, labelled: Labelled[Any]) -> str:
    """What a certificate is `about`, with the share of unanswerable queries if there are copies."""
    if not copies_in(labelled).any():
        return about
    share = sum(not grades for grades in labelled.grades) / len(labelled)
    return f"{about}, {share:.0%} of them without an answer here (expected, not seen)"


def has_enough_unanswerable(grades: Sequence[Grades]) -> bool:
    """Whether at least `ENOUGH_UNANSWERABLE` of the labelled queries have no answer."""
    return sum(not right for right in grades) >= ENOUGH_UNANSWERABLE


def add_copies(
    pipeline: Pipeline, candidates: Labelled[Candidates], share: float | None = None
) -> Labelled[Candidates]:
    """The labelled candidates, then copies: unanswerable ones are a `share` of all, if possible.

    Without one, it is `expected_unanswerable`. The queries to copy are drawn by a hash of their
    text, whatever their order.
    """
    answered = [bool(grades) for grades in candidates.grades]
    wanted = copies_wanted(
        answered, pipeline.config.expected_unanswerable if share is None else share
    )

    def drawn(row: int) -> tuple[str, str]:
        query = candidates.items[row].query
        key = f"{pipeline.config.seed} {query.text}"
        return hashlib.sha256(key.encode()).hexdigest(), query.query_id

    rows = sorted(sorted(np.flatnonzero(answered).tolist(), key=drawn)[:wanted])
    if not rows:
        return candidates
    copies = pipeline.retrieve_without(
        [_copy(candidates.items[i].query) for i in rows],
        [answers(candidates.items[i].passages, candidates.grades[i]) for i in rows],
    )
    return Labelled(
        [*candidates.items, *copies],
        np.concatenate([candidates.groups, candidates.groups[rows]]),
        [*candidates.grades, *({} for _ in rows)],
    )


def answers(passages: Sequence[Passage], grades: Grades) -> frozenset[str]:
    """Ids of the right passages, and of those among `passages` that are nearly the same."""
    ids = [passage.doc_id for passage in passages]
    duplicates = [(ids[a], ids[b]) for a, b in near_duplicates([p.text for p in passages])]
    right_ids, before = set(grades), 0
    while len(right_ids) > before:
        before = len(right_ids)
        right_ids.update(*(pair for pair in duplicates if not right_ids.isdisjoint(pair)))
    return frozenset(right_ids)


def _copy(query: Query) -> Query:
    metadata = {**query.metadata, ANSWERS_TAKEN_OUT: True}
    return replace(query, query_id=f"{query.query_id} (answers taken out)", metadata=metadata)

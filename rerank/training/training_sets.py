"""Which queries of a labelled set are trained on, which validate, and how many each set gives.

What is measured on later must not be trained on: not a query, nor its group, nor its right passage.
"""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from rerank.data.checks import query_hash
from rerank.data.labelled_set import LabelledSet, asked_about, given_group
from rerank.errors import InputError


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A labelled set to train on: its split, and how many examples (default: one per query)."""

    labelled: LabelledSet
    split: str = "train"
    limit: int | None = None
    within: bool = False  # wrong passages are of the query's own group: see `mine`

    def __post_init__(self) -> None:
        name, splits = self.labelled.name, self.labelled.splits
        if self.limit is not None and self.limit < 1:
            raise InputError(f"{name}: expected at least 1 query, got {self.limit}")
        if not splits.get(self.split):
            raise InputError(f"{name} has no split {self.split!r}; it has {list(splits)}")


def split_validation(
    labelled: LabelledSet,
    split: str,
    count: int,
    *,
    seed: int,
    seen: frozenset[str] = frozenset(),
    limit: int | None = None,
) -> tuple[list[str], list[str]]:
    """(ids of queries to train on, at most `limit`; ids of about `count` to validate on).

    Both are whole groups, in random order: what a limit leaves over can still be calibrated on. At
    most a fifth of the queries are held out, and no group with a query (`query_hash`) that the base
    has `seen`: on those it would look better than it is.
    """
    groups: dict[str, list[str]] = {}
    for query_id in labelled.splits[split]:
        groups.setdefault(labelled.group(query_id), []).append(query_id)
    names = sorted(groups)
    random.Random(f"{seed}:{labelled.name}").shuffle(names)
    room = min(count, len(labelled.splits[split]) // 5)
    held: list[str] = []
    to_train: list[str] = []
    for name in names:
        group = groups[name]
        is_seen = any(query_hash(labelled.queries[i].text) in seen for i in group)
        if not is_seen and len(held) + len(group) <= room:
            held += group
        elif limit is None or len(to_train) + len(group) <= limit:
            to_train += group
    if names and not to_train:
        raise InputError(
            f"{labelled.name}: every group of its {split!r} has more than the {limit} queries "
            "asked for; ask for more, or group them more finely"
        )
    return to_train, held


def without_overlap(
    labelled: LabelledSet, ids: Sequence[str], held: Sequence[str], validated_on: Set[str]
) -> list[str]:
    """`ids` without those whose question is one of `validated_on` (`query_hash`), of whatever set,
    or which share the group or a right passage with one of the `held` queries of this set.
    """
    marks = {mark for i in held for mark in _overlap_keys(labelled, i)}
    return [
        i
        for i in ids
        if query_hash(labelled.queries[i].text) not in validated_on
        and marks.isdisjoint(_overlap_keys(labelled, i))
    ]


def leave_out(labelled: LabelledSet, held: Sequence[LabelledSet], split: str) -> LabelledSet:
    """The set with a `split` that holds nothing of the sets `held`, for training.

    A query is dropped if one of `held` asks it, or has one of its right passages as a right one, or
    has the same name, as a part of this set, and a query of the same group.
    """
    if not held:
        return labelled
    asked = {query_hash(q.text) for other in held for q in other.queries.values()}
    answers = {text for other in held for i in other.queries for text in _answers(other, i)}
    parts = [other for other in held if other.name == labelled.name]
    groups = {_group_of_texts(other, i) for other in parts for i in other.queries}
    ids = labelled.split(split)
    kept = tuple(
        i
        for i in ids
        if query_hash(labelled.queries[i].text) not in asked
        and _group_of_texts(labelled, i) not in groups
        and answers.isdisjoint(_answers(labelled, i))
    )
    if ids and not kept:
        raise InputError(f"{labelled.name}: --leave-out leaves no query of {split!r} to train on")
    return replace(labelled, splits={**labelled.splits, split: kept})


def _group_of_texts(labelled: LabelledSet, query_id: str) -> str | frozenset[str]:
    """The group of a query; unless it has a name, by texts: the parts of a set count ids anew."""
    query = labelled.queries[query_id]
    if named := given_group(query):
        return named
    about = labelled.corpus.get(asked_about(query))
    texts = _answers(labelled, query_id) or ({about.full_text} if about else set())
    return frozenset(texts or {query_hash(query.text)})


def _answers(labelled: LabelledSet, query_id: str) -> set[str]:
    return {labelled.corpus[doc_id].full_text for doc_id in labelled.relevant(query_id)}


def _overlap_keys(labelled: LabelledSet, query_id: str) -> frozenset[tuple[str, str]]:
    questions = {("question", mark) for mark in labelled.duplicate_keys(query_id)}
    return frozenset(questions | {("right", doc_id) for doc_id in labelled.relevant(query_id)})


def examples_per_set(sizes: Sequence[int], total: int, temperature: float) -> list[int]:
    """How many of `total` examples each set gives: in proportion to its size ** (1 / temperature).

    Temperature 1 gives the proportions of the sizes, a high one equal shares (Arivazhagan et al.
    2019). Each set gives at least one.
    """
    logits = np.log(np.asarray(sizes, dtype=np.float64)) / temperature
    weights = np.exp(logits - logits.max())  # a power of a size would overflow
    return [max(1, int(n)) for n in np.rint(total * weights / weights.sum())]

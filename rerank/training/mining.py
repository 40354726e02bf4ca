"""Training data of a cross-encoder: short lists of right and wrong passages, mined with the index.

A training query gets one right passage (if it has any) and wrong ones; the hard negatives are from
the top of the first stage. A validation query keeps the first stage's list as it is. This file
knows nothing of training.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rerank.config import FinetuneConfig
from rerank.data.canonical import query_hash
from rerank.data.labelled_set import JUDGED_WRONG, LabelledSet, asked_about
from rerank.errors import InputError
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index
from rerank.training.altered import alter
from rerank.types import Passage, Query, metadata_name

NEAR_DUPLICATE = 0.8  # Jaccard overlap of word sets above which a "negative" repeats the answer

POOL = 50  # passages that each first stage returns, at least


@dataclass(frozen=True, slots=True)
class Example:
    """One query and its short list; `labels` is 1 where the passage is right.

    The right passages come first, then `judged` ones that a person judged wrong. `teacher` holds a
    teacher model's logits of the same passages, if there is a teacher. `withheld`: the right
    passage is there for a miner only, see `without_withheld`. `altered_from`: the query of the set
    that `alter` made this one of; its right passage is then a wrong one, and `judged`.
    """

    query: str
    passages: tuple[str, ...]
    labels: tuple[int, ...]
    teacher: tuple[float, ...] = ()
    judged: int = 0
    withheld: bool = False
    altered_from: str = ""


@dataclass(frozen=True, slots=True)
class ValidationQuery:
    """One validation query: its right passages, and the first stage's list, best first."""

    query: str
    right: tuple[str, ...]
    found: tuple[str, ...]


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
    draw = random.Random(f"{seed}:{labelled.name}")
    groups: dict[str, list[str]] = {}
    for query_id in labelled.splits[split]:
        groups.setdefault(labelled.group(query_id), []).append(query_id)
    names = sorted(groups)
    draw.shuffle(names)
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
    return to_train, held


def without_overlap(
    labelled: LabelledSet, ids: Sequence[str], held: Sequence[str], validated_on: frozenset[str]
) -> list[str]:
    """`ids` without those that overlap with the validation queries.

    An id is dropped if its question is one of `validated_on` (`query_hash`), of whatever set, or if
    it shares the group or a right passage with one of the `held` queries of this set.
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

    Raises:
        InputError: no query is left.
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
    named = metadata_name(labelled.queries[query_id].metadata, "group")
    if named:
        return named
    about = asked_about(labelled.queries[query_id])
    texts = _answers(labelled, query_id) or {
        labelled.corpus[i].full_text for i in [about] if i in labelled.corpus
    }
    return frozenset(texts or {query_hash(labelled.queries[query_id].text)})


def _answers(labelled: LabelledSet, query_id: str) -> set[str]:
    return {labelled.corpus[doc_id].full_text for doc_id in labelled.relevant(query_id)}


def _overlap_keys(labelled: LabelledSet, query_id: str) -> frozenset[tuple[str, str]]:
    questions = {("question", mark) for mark in labelled.duplicate_keys(query_id)}
    return frozenset(questions | {("right", doc_id) for doc_id in labelled.relevant(query_id)})


def mine(
    labelled: LabelledSet,
    ids: Sequence[str],
    index: Index | None,
    encoder: Encoder,
    config: FinetuneConfig,
    *,
    limit: int | None = None,
) -> list[Example]:
    """`limit` examples from the queries `ids`, in their order; by default one per query.

    A limit above the number of queries goes round again, and draws other wrong passages. Passages
    that a person judged wrong come first, above all the passage that an unanswerable query was
    asked about; the first stage's best fill the rest. Without an `index`, for questions that do not
    name their subject, only passages of the query's own group fill it, and a query that has none is
    left out.
    """
    draw = random.Random(f"{config.seed}:{labelled.name}:lists")
    queries = [labelled.queries[i] for i in ids[:limit]]
    if index is None:
        by_group = _passages_by_group(labelled)
        lists = [by_group[labelled.group(q.query_id)] for q in queries]
    else:
        vectors = encoder.encode([q.text for q in queries], label=f"mining {labelled.name}")
        lists = [
            _first_stage(
                query, vector, index, config.depth + len(labelled.relevant(query.query_id))
            )
            for query, vector in zip(queries, vectors, strict=True)
        ]
    rounds = itertools.cycle(zip(queries, lists, strict=True))
    examples = (
        _example(labelled, query, candidates, index, config, draw)
        for query, candidates in itertools.islice(rounds, limit or len(queries))
    )
    return [example for example in examples if 0 in example.labels]


def _passages_by_group(labelled: LabelledSet) -> dict[str, list[Passage]]:
    """The passages that are right, wrong or asked about for the queries of a group, by group."""
    by_group: dict[str, dict[str, Passage]] = {}
    for query_id in labelled.queries:
        judged_ids = (labelled.relevant(query_id), _judged_wrong(labelled, query_id))
        group = by_group.setdefault(labelled.group(query_id), {})
        group.update({i: labelled.corpus[i] for i in sorted({*judged_ids[0], *judged_ids[1]})})
    return {name: list(group.values()) for name, group in by_group.items()}


def _judged_wrong(labelled: LabelledSet, query_id: str) -> list[str]:
    """Ids of passages known to be wrong; an unanswerable query's passage asked about is first."""
    query, right = labelled.queries[query_id], labelled.relevant(query_id)
    judged = query.metadata.get(JUDGED_WRONG)
    ids = map(str, judged) if isinstance(judged, (list, tuple)) else ()
    wrong = dict.fromkeys(ids if right else (asked_about(query), *ids))
    return [i for i in wrong if i in labelled.corpus and i not in right]


def _example(
    labelled: LabelledSet,
    query: Query,
    candidates: Sequence[Passage],
    index: Index | None,
    config: FinetuneConfig,
    draw: random.Random,
) -> Example:
    """One example from the first stage's `candidates`, best first; unordered without `index`."""
    right = sorted(labelled.relevant(query.query_id))
    shown = [labelled.corpus[draw.choice(right)]] if right else []
    answers = {doc_id: _word_set(labelled.corpus[doc_id]) for doc_id in right}
    judged = [labelled.corpus[i] for i in _judged_wrong(labelled, query.query_id)]
    question, altered_from = query.text, ""
    if shown and config.altered and draw.random() < config.altered:
        changed = alter(question, shown[0].full_text, draw)
        if changed:
            question, altered_from, judged, shown = changed, query.text, shown, []
    near = [p for p in candidates if _is_wrong(p, answers) and p not in judged]
    if index is not None:
        near = near[: config.depth]
    withheld = bool(shown and near and config.withheld and draw.random() < config.withheld)
    room = config.hard + (withheld or not shown)
    first_wrong, others = (judged[:0], judged) if shown else (judged[:1], judged[1:])
    sure = [*first_wrong, *draw.sample(others, len(others))][:room]
    hard = [*sure, *draw.sample(near, min(room - len(sure), len(near)))]
    easy: list[Passage] = []
    if index is not None:
        easy = [index.passage(draw.randrange(len(index))) for _ in range(config.easy)]
    easy = [p for p in easy if _is_wrong(p, answers)]
    passages = [p.full_text for p in (*shown, *hard, *easy)]
    labels = (1,) * len(shown) + (0,) * (len(passages) - len(shown))
    example = Example(
        question,
        tuple(passages),
        labels,
        judged=len(sure),
        withheld=withheld,
        altered_from=altered_from,
    )
    return example if config.miner else without_withheld(example)


def without_withheld(example: Example) -> Example:
    """The list without its right passage, if that is withheld."""
    if not example.withheld:
        return example
    kept = [i for i, label in enumerate(example.labels) if label == 0]
    return replace(
        example,
        passages=tuple(example.passages[i] for i in kept),
        labels=(0,) * len(kept),
        withheld=False,
    )


def without_misled_teacher(example: Example) -> Example:
    """The list without its teacher, if it has only wrong passages, one of them judged so.

    A teacher takes the passage that an unanswerable question was asked about for its answer; so
    such a list is learned from its labels alone.
    """
    misled = example.judged and not any(example.labels)
    return replace(example, teacher=()) if misled else example


def examples_per_set(sizes: Sequence[int], total: int, temperature: float) -> list[int]:
    """How many of `total` examples each set gives: in proportion to its size ** (1 / temperature).

    Temperature 1 gives the proportions of the sizes, a high one equal shares (Arivazhagan et al.
    2019, who mixed languages this way). Each set gives at least one.
    """
    logits = np.log(np.asarray(sizes, dtype=np.float64)) / temperature
    weights = np.exp(logits - logits.max())  # a power of a size would overflow
    return [max(1, int(n)) for n in np.rint(total * weights / weights.sum())]


def validation_queries(
    labelled: LabelledSet, ids: Sequence[str], index: Index, encoder: Encoder, *, depth: int
) -> list[ValidationQuery]:
    """The first stage's `depth` best passages of each answerable query of `ids`."""
    queries = [labelled.queries[i] for i in ids if labelled.relevant(i)]
    if not queries:
        return []
    vectors = encoder.encode([q.text for q in queries])
    held = []
    for query, vector in zip(queries, vectors, strict=True):
        right = sorted(labelled.relevant(query.query_id))
        candidates = _first_stage(query, vector, index, depth)
        held.append(
            ValidationQuery(
                query.text,
                tuple(labelled.corpus[d].full_text for d in right),
                tuple(p.full_text for p in candidates),
            )
        )
    return held


def _first_stage(
    query: Query, vector: NDArray[np.float32], index: Index, count: int
) -> list[Passage]:
    stage = index.search(query.text, vector, pool=max(POOL, count), count=count, rrf_k=60)
    return [index.passage(row) for row in stage.rows]


def _is_wrong(passage: Passage, answers: Mapping[str, set[str]]) -> bool:
    """Whether a passage is neither right nor a near-duplicate of a right one.

    `answers` are the words of the right passages, by id.
    """
    if passage.doc_id in answers:
        return False
    words = _word_set(passage)
    return all(
        len(answer & words) < NEAR_DUPLICATE * len(answer | words) for answer in answers.values()
    )


def _word_set(passage: Passage) -> set[str]:
    return set(passage.full_text.lower().split())


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A labelled set to train on: its split, and how many examples (default: one per query)."""

    labelled: LabelledSet
    split: str = "train"
    limit: int | None = None
    within: bool = False  # wrong passages are of the query's own group: see `mine`

    def __post_init__(self) -> None:
        """Refuse a missing or empty split before any work is done for it."""
        labelled, split, limit = self.labelled, self.split, self.limit
        if limit is not None and limit < 1:
            raise InputError(f"{labelled.name}: expected at least 1 query, got {limit}")
        if not labelled.splits.get(split):
            has = list(labelled.splits)
            raise InputError(f"{labelled.name} has no split {split!r}; it has {has}")

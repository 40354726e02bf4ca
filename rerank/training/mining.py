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

from rerank.config import Config
from rerank.data.labelled_set import JUDGED_WRONG, LabelledSet, asked_about
from rerank.retrieval.dense import Encoder
from rerank.retrieval.index import Index
from rerank.training.altered_questions import alter
from rerank.training.settings import FinetuneConfig
from rerank.types import Passage, Query

NEAR_DUPLICATE = 0.8  # Jaccard overlap of word sets above which a "negative" repeats the answer

POOL = 50  # passages that each first stage returns, at least


@dataclass(frozen=True, slots=True)
class Example:
    """One query and its short list; `labels` is 1 where the passage is right.

    The right passages come first, then `judged` ones that a person judged wrong. `teacher` holds a
    teacher model's logits of the same passages, if there is a teacher. `altered_from`: the query of
    the set that `alter` made this one of; its right passage is then a wrong one, and `judged`.
    """

    query: str
    passages: tuple[str, ...]
    labels: tuple[int, ...]
    teacher: tuple[float, ...] = ()
    judged: int = 0
    altered_from: str = ""


@dataclass(frozen=True, slots=True)
class ValidationQuery:
    """One validation query: its right passages, and the first stage's list, best first."""

    query: str
    right: tuple[str, ...]
    found: tuple[str, ...]


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
    if withheld:
        shown = []
    passages = tuple(p.full_text for p in (*shown, *hard, *easy))
    labels = (1,) * len(shown) + (0,) * (len(passages) - len(shown))
    return Example(question, passages, labels, judged=len(sure), altered_from=altered_from)


def without_misled_teacher(example: Example) -> Example:
    """The list without its teacher, if it has only wrong passages, one of them judged so.

    A teacher takes the passage that an unanswerable question was asked about for its answer; so
    such a list is learned from its labels alone.
    """
    misled = example.judged and not any(example.labels)
    return replace(example, teacher=()) if misled else example


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
    stage = index.search(
        query.text, vector, pool=max(POOL, count), count=count, rrf_k=Config().rrf_k
    )
    found = [index.passage(row) for row in stage.rows]
    return [passage for passage in found if passage.doc_id not in query.without]


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

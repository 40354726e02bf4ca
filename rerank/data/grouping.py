"""Groups of queries: the largest unit that labels share and that still leaves ten groups.

A confidence fitted and measured on questions about the same documents looks too good for new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.metrics import MIN_GROUPS
from rerank.data.checks import group_hash, query_hash
from rerank.data.duplicates import near_duplicates
from rerank.data.labelled_set import Grouping, LabelledSet, given_group, group_label
from rerank.types import Passage, Query, metadata_name

NEW_DOCUMENTS = "questions about new documents"
THESE_DOCUMENTS = "new questions about these documents"
NEW_GROUPS = "questions of new groups (by metadata)"

LARGEST_SHARE = 0.5  # of the queries in one group: a fold of nearly all fits nothing


def sampled_units(queries: Iterable[Query]) -> NDArray[np.str_]:
    """What a random sample of questions drew, (n,): `metadata.group`, or a question with copies."""
    return np.array([given_group(q) or f"question {query_hash(q.text)}" for q in queries])


def groupings(labelled: LabelledSet, ids: Sequence[str]) -> Iterator[Grouping]:
    """Yield the usable groupings of these queries, the largest first; the last is always usable.

    They are `metadata.group`, if every query has it; else the documents of the passages that are
    right or asked about, then those passages, then `LabelledSet.question_group`. A document is the
    `metadata.document` of a passage, else its title, else the passage itself. Everything that one
    query is about is joined, as are queries of one `metadata.group`, and units that hold nearly the
    same passages. Queries about no passage are grouped by their words.
    """
    subjects = {i: labelled.subject(i) for i in ids}
    if ids and all(named for named, _ in subjects.values()):
        yield Grouping("metadata.group", NEW_GROUPS, {})
        return
    of_query = {i: [d for d in ds if d in labelled.corpus] for i, (_, ds) in subjects.items()}
    passages = sorted({doc_id for doc_ids in of_query.values() for doc_id in doc_ids})
    places = list(near_duplicates([labelled.corpus[d].text for d in passages]))
    own = {doc_id: f"passage:{doc_id}" for doc_id in passages}
    documents = {doc_id: _document(labelled.corpus[doc_id]) or own[doc_id] for doc_id in passages}
    kind = "passage" if documents == own else "document"
    for name, about, of_passage in (
        (kind, NEW_DOCUMENTS, documents),
        ("passage", THESE_DOCUMENTS, own),
    ):
        keys = {
            i: [*map(of_passage.__getitem__, of_query[i]), *([group_label(named)] if named else [])]
            for i, (named, _) in subjects.items()
        }
        near = [(of_passage[passages[a]], of_passage[passages[b]]) for a, b in places]
        of = connected_groups({i: of_one for i, of_one in keys.items() if of_one}, near)
        if usable_groups(of.values(), len(ids)):
            yield Grouping(name, about, of)
    yield Grouping("question", THESE_DOCUMENTS, {})


def usable_groups(groups: Iterable[str], queries: int) -> bool:
    """Whether the groups, one per query, are ten or more, none with over half of the queries."""
    counts = Counter(groups)
    return len(counts) >= MIN_GROUPS and max(counts.values()) <= LARGEST_SHARE * queries


def choose_grouping(
    possible: Sequence[Grouping], labelled: LabelledSet, ids: Sequence[str], *, least_groups: int
) -> tuple[Grouping, dict[str, str]]:
    """The first of the `possible` groupings that divides these queries into enough groups.

    It leaves `least_groups` at least, none too large; if none does, it is the last. With it comes
    the group of each query: groups that hold the same question are one.
    """
    for grouping in possible:
        grouped = replace(labelled, grouping=grouping)
        keys = {i: [grouped.group(i), *sorted(grouped.duplicate_keys(i))] for i in ids}
        groups = connected_groups(keys, ())
        named = [grouping.of[i] for i in ids if i in grouping.of]
        enough = len(set(groups.values())) >= least_groups
        if enough and all(usable_groups(g, len(ids)) for g in (named, groups.values())):
            break
    return grouping, groups


def marks_of(queries: Iterable[Query]) -> frozenset[str]:
    """What was fitted on: `query_hash` of each query, and `group_hash` of each `metadata.group`."""
    given = [(query_hash(query.text), given_group(query)) for query in queries]
    return frozenset(text for text, _ in given) | {group_hash(name) for _, name in given if name}


def was_seen(query: Query, seen: frozenset[str]) -> bool:
    """Whether a query or its `metadata.group` is among the marks of others (`marks_of`)."""
    return not seen.isdisjoint(marks_of([query]))


def grouped(labelled: LabelledSet, ids: Sequence[str]) -> LabelledSet:
    """The set with the first of `groupings` of these queries, replacing any earlier grouping."""
    plain = replace(labelled, grouping=None)
    return replace(plain, grouping=next(groupings(plain, ids)))


def _document(passage: Passage) -> str:
    document = metadata_name(passage.metadata, "document") or passage.title
    name = " ".join(document.lower().split())
    return f"document:{name}" if name else ""


def connected_groups(
    keys: Mapping[str, Sequence[str]], pairs: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Id -> the first key, in order, of all that are connected to its own; each id has a key.

    Keys are connected if one id has both, or if they are one of the `pairs`.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    joined = ((first, other) for first, *others in keys.values() for other in others)
    for a, b in (*joined, *pairs):
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return {i: root(first) for i, (first, *_) in keys.items()}

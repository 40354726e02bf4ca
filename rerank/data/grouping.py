"""Groups of queries: the largest thing that repeats in the labels and still leaves ten of it.

Questions about one document share more than those about one passage do. A confidence that is fitted
and measured on the same documents, other questions, says too much of itself on new documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from calibration.metrics import LEAST_GROUPS
from rerank.data.labelled_set import ASKED_ABOUT, Grouping, LabelledSet
from rerank.data.near_duplicates import near_duplicates
from rerank.types import Passage

NEW_DOCUMENTS = "questions about new documents"
THESE_DOCUMENTS = "new questions about these documents"
NEW_GROUPS = "questions of new groups (by metadata)"

LARGEST_SHARE = 0.5
"""Of the queries, that one group may hold: folds of nearly all and of nearly none fit nothing."""


def groupings(labelled: LabelledSet, ids: Sequence[str]) -> Iterator[Grouping]:
    """Yield what may keep these queries together, the largest first; the last one always may.

    A named key where the queries have it (`metadata.group`); else the documents of the passages
    that are right or asked about, and those passages; else `LabelledSet.question_group`. A document
    is what `metadata.document` of a passage names, else its title, else the passage itself. What
    one query is about, and what nearly the same passages stand in, is joined. Queries about no
    passage are told apart by their words.
    """
    if any(labelled.queries[i].named("group") for i in ids):
        yield Grouping("metadata.group", NEW_GROUPS, {})
        return
    about = {i: _about(labelled, i) for i in ids}
    passages = sorted({d for found in about.values() for d in found})
    places = list(near_duplicates([labelled.corpus[d].text for d in passages]))
    alike = [(passages[a], passages[b]) for a, b in places]
    for name, promise, key in (
        ("document", NEW_DOCUMENTS, _document),
        ("passage", THESE_DOCUMENTS, _itself),
    ):
        of = _components(labelled, about, alike, key)
        if usable_groups(of.values(), len(ids)):
            yield Grouping(name, promise, of)
    yield Grouping("question", THESE_DOCUMENTS, {})


def usable_groups(groups: Iterable[str], many: int) -> bool:
    """Whether the groups, one a query, are ten at least, and none has half of `many` queries."""
    counts = Counter(groups)
    return len(counts) >= LEAST_GROUPS and max(counts.values()) <= LARGEST_SHARE * many


def grouped(labelled: LabelledSet, ids: Sequence[str]) -> LabelledSet:
    """The set with the first of `groupings` of these queries, whatever it was grouped by before."""
    plain = replace(labelled, grouping=None)
    return replace(plain, grouping=next(groupings(plain, ids)))


def _about(labelled: LabelledSet, query_id: str) -> list[str]:
    """The passages that a query is about: the right ones, else the one it was asked about."""
    right = sorted(labelled.relevant(query_id))
    asked = labelled.queries[query_id].metadata.get(ASKED_ABOUT)
    return right or ([str(asked)] if str(asked) in labelled.corpus else [])


def _document(passage: Passage) -> str:
    given = passage.metadata.get("document")
    named = " ".join(str(passage.title if given is None else given).lower().split())
    return f"document:{named}" if named else _itself(passage)


def _itself(passage: Passage) -> str:
    return f"passage:{passage.doc_id}"


def _components(
    labelled: LabelledSet,
    about: dict[str, list[str]],
    alike: Sequence[tuple[str, str]],
    key: Callable[[Passage], str],
) -> dict[str, str]:
    """Query id -> the least key of all that hangs together with what it is about."""
    keys = {i: [key(labelled.corpus[d]) for d in found] for i, found in about.items() if found}
    return joined(keys, [(key(labelled.corpus[a]), key(labelled.corpus[b])) for a, b in alike])


def joined(keys: Mapping[str, Sequence[str]], alike: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Id -> the least key of all that hangs together with its own, one key at least.

    Keys hang together where one id has them, or where they are a pair of `alike`.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def join(one: str, other: str) -> None:
        low, high = sorted((root(one), root(other)))
        parent[high] = low

    for found in keys.values():
        for other in found:
            join(found[0], other)
    for one, other in alike:
        join(one, other)
    return {i: root(found[0]) for i, found in keys.items()}

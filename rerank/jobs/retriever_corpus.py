"""The labelled passages as another search system holds them: the corpus of its calibration."""

from __future__ import annotations

from dataclasses import replace

from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.retrieval.systems.system import SearchSystem, passages_by_id
from rerank.types import Passage

AT_ONCE = 200  # ids per request


def with_held_passages(
    labelled: LabelledSet, system: SearchSystem
) -> tuple[LabelledSet, tuple[str, ...]]:
    """The set whose corpus is the labelled passages as the collection holds them, and notes.

    A passage that the collection lacks has an empty text; the notes count these. Queries are then
    grouped by the passages held.

    Raises:
        InputError: the collection holds none of them.
        RetrieverError: the system does not answer.
    """
    named = sorted({doc_id for grades in labelled.qrels.values() for doc_id in grades})
    held: dict[str, Passage] = {}
    for start in range(0, len(named), AT_ONCE):
        held |= passages_by_id(system, named[start : start + AT_ONCE])
    labelled = replace(labelled, corpus={**{i: Passage(i, "", "") for i in named}, **held})
    missing = [doc_id for doc_id in named if doc_id not in held]
    if not missing:
        return labelled, ()
    field = f"the field {system.settings.id!r} of {system.settings}"
    if not held:
        raise InputError(
            f"none of the {len(named)} passages that the labels name is in {field}; expected the "
            f"same ids there as in qrels/, such as {named[0]!r:.80}"
        )
    lost = sum(bool(grades) and not held.keys() & grades for grades in labelled.qrels.values())
    note = (
        f"{len(missing)} of the {len(named)} passages that the labels name are not in {field}, "
        f"such as {missing[0]!r:.80}"
    )
    if lost:
        queries = "1 query has" if lost == 1 else f"{lost} queries have"
        note += f"; {queries} no other right passage, and so no right answer can be found"
    return labelled, (note,)

"""Does another search system hold the labelled passages, with vectors of our encoder?

The checks cost a few searches, and prevent a calibration on passages that are never found.
"""

from __future__ import annotations

from dataclasses import replace

from rerank.assessment.retriever_pipeline import RetrieverPipeline
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.retrieval.systems.system import SearchSystem, passages_by_id
from rerank.types import Passage

AT_ONCE = 200  # ids per request
TRIED = 20  # passages to encode and search for
NEAREST = 10  # results that should include the passage itself


def with_held_passages(
    labelled: LabelledSet, system: SearchSystem
) -> tuple[LabelledSet, tuple[str, ...]]:
    """The set with the labelled passages as its corpus, as the collection holds them, and notes.

    A passage that it does not hold has no text.

    Queries are grouped by these passages. The notes say how many are missing from the collection.

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


def check_vectors(pipeline: RetrieverPipeline, labelled: LabelledSet) -> None:
    """Refuse a collection whose vectors were made by another encoder.

    An encoded passage should be among the nearest to its own vector.

    Raises:
        InputError: most of the passages tried are not.
    """
    system = pipeline.system
    held = [passage for passage in labelled.corpus.values() if passage.text]
    tried = held[:: max(1, len(held) // TRIED)][:TRIED]
    if "vector" not in system.settings.stages or not tried:
        return
    vectors = pipeline.encode([passage.full_text for passage in tried])
    near_themselves = sum(
        any(hit.passage.doc_id == passage.doc_id for hit in system.vector(vector, NEAREST))
        for passage, vector in zip(tried, vectors, strict=True)
    )
    if 2 * near_themselves < len(tried):
        raise InputError(
            f"{system.settings}: of {len(tried)} passages, encoded by {pipeline.config.encoder}, "
            f"{near_themselves} are among the {NEAREST} nearest to themselves; the vectors of "
            f"{system.settings.vector!r} were made by another encoder: name it (--encoder), or "
            "leave `vector` out"
        )

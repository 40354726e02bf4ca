"""Are the vectors that another search system holds those of our encoder?

The check costs a few searches, and prevents a calibration on passages that are never found.
"""

from __future__ import annotations

from rerank.assessment.retriever_pipeline import RetrieverPipeline
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError

TRIED = 20  # passages to encode and search for
NEAREST = 10  # results that should include the passage itself


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

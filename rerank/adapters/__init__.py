"""A calibrated model inside other frameworks, one module each; here is what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from rerank.errors import InputError
from rerank.filters import Where
from rerank.types import TITLES, Assessment, Passage, Query, RankedPassage


def rank_documents(
    model: Any,
    query: str,
    documents: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    count: int,
    min_relevance: float,
    segment: str = "",
) -> list[tuple[int, dict[str, Any]]]:
    """The places in `documents` of the `count` best, best first, each with the metadata to add.

    A document is its text and its metadata, which the model may have features of, and which may
    hold its title (`TITLES`): the model reads that before the text. A model of lists takes its
    scores from there, under the names of its stages. Documents without a text, such as images, are
    left out. `segment` is that of the query, if the model has segments.
    """
    _check(model, count, min_relevance)
    places = [i for i, (text, _) in enumerate(documents) if text.strip()]
    passages = []
    for i in places:
        text, metadata = documents[i]
        titles = (metadata.get(key) for key in TITLES)
        title = next((t for t in titles if isinstance(t, str) and t.strip()), "")
        passages.append(Passage(str(i), title, text, metadata))
    stages, segments = model.source.kind.stages, model.of_segment(segment)
    if stages:  # of lists: the frameworks' own scores, under the names of the stages
        scores: Any = {s: [documents[i][1].get(s) for i in places] for s in stages}
        asked = Query(query, "", segments, tuple(passages), scores=scores if places else None)
        (assessment,) = model.assess([asked])
    else:
        assessment = model.rerank(query, passages, metadata=segments)
    return [
        (places[passage.row], document_metadata(assessment, passage))
        for passage in assessment.first(count)
        if passage.relevance >= min_relevance
    ]


def search_documents(
    model: Any,
    query: str,
    *,
    count: int,
    min_relevance: float,
    segment: str = "",
    where: Mapping[str, Any] | None = None,
) -> list[tuple[RankedPassage, dict[str, Any]]]:
    """The `count` best passages that the model finds, best first, each with the metadata to add.

    Its own metadata, its id and its title are among these.
    """
    _check(model, count, min_relevance)
    asked = Query(query, metadata=model.of_segment(segment), where=Where.read(where))
    (assessment,) = model.assess([asked])
    found = [p for p in assessment.first(count) if p.relevance >= min_relevance]
    own = [{**p.metadata, "doc_id": p.doc_id, "title": p.title} for p in found]
    return [(p, d | document_metadata(assessment, p)) for p, d in zip(found, own, strict=True)]


def _check(model: object, count: object, min_relevance: object) -> None:
    if not hasattr(model, "rerank"):
        raise InputError(f"`model` should be a model of `rerank.load`, got {model!r:.100}")
    check_settings(count, min_relevance)


def check_settings(count: object, min_relevance: object) -> None:
    """Refuse settings that no ranking can use."""
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise InputError(
            "top_n (or top_k), the documents to return, should be a whole number from 1 up, got "
            f"{count!r:.100}"
        )
    if not isinstance(min_relevance, Real) or not 0 <= float(min_relevance) <= 1:
        raise InputError(f"min_relevance should be from 0 to 1, got {min_relevance!r:.100}")


def document_metadata(assessment: Assessment, passage: RankedPassage) -> dict[str, Any]:
    """The metadata of one ranked document.

    `relevance_score` is P(this document is right); `confidence`, `level` and `accepted` are of the
    whole answer, P(the first document is right). If `calibrated` is False, they only order.
    """
    return {
        "relevance_score": passage.relevance,
        "confidence": assessment.confidence,
        "level": assessment.level if assessment.calibrated else f"{assessment.level}, uncalibrated",
        "accepted": assessment.accepted,
        "calibrated": assessment.calibrated,
    }

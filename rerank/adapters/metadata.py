"""The metadata of a ranked document: the same keys in every framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerank.types import Assessment, RankedPassage


def document_metadata(assessment: Assessment, passage: RankedPassage) -> dict[str, Any]:
    """The metadata of one ranked document.

    `relevance_score` is P(this document is right); `confidence`, `level` and `accepted` are of the
    whole answer, P(the first document is right). If `calibrated` is False, they are no probability.
    """
    return {
        "relevance_score": passage.relevance,
        "confidence": assessment.confidence,
        "level": assessment.level,
        "accepted": assessment.accepted,
        "calibrated": assessment.calibrated,
    }


def with_words(texts: Sequence[str]) -> list[int]:
    """Rows of the documents that have words; the others, such as images, cannot be ranked."""
    return [row for row, text in enumerate(texts) if text.strip()]

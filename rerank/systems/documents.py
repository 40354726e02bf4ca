"""A document of a collection as a passage, and checks that the collection has what is named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rerank.errors import FilterError, InputError, nearest
from rerank.retrieval.system import Hit
from rerank.systems.settings import RetrieverSettings
from rerank.types import LARGEST_SCORE, Passage

SHOWN = 20  # fields of a collection, in a message


def hits_of(
    settings: RetrieverSettings, rows: Iterable[tuple[Mapping[str, Any], float]]
) -> list[Hit]:
    """The hits of documents with their scores; documents that are not a passage are left out."""
    read = ((passage_of(settings, document), score) for document, score in rows)
    return [Hit(p, float(score)) for p, score in read if p and abs(score) <= LARGEST_SCORE]


def passage_of(settings: RetrieverSettings, document: Mapping[str, Any]) -> Passage | None:
    """The passage of a document; None if it has no id or no text."""
    doc_id, text = _text(document.get(settings.id)), _text(document.get(settings.text))
    if not doc_id or not text.strip():
        return None
    metadata = {n: document[n] for n in settings.metadata if document.get(n) is not None}
    return Passage(doc_id, _text(document.get(settings.title)), text, metadata)


def check_known_fields(
    settings: RetrieverSettings, names: Iterable[str], there: Collection[str]
) -> None:
    """Refuse settings that name fields that the collection lacks; an empty name is ignored."""
    for name in names:
        if name and name not in there:
            raise InputError(
                f"{settings}: it has no field {name!r}{nearest(name, there)}; it has "
                f"{', '.join(sorted(there)[:SHOWN])}"
            )


def check_filtered(name: str, there: Collection[str]) -> None:
    """Refuse a filter on a field that the collection lacks; the client may not know where it is.

    Raises:
        FilterError: naming the field.
    """
    if name not in there:
        raise FilterError(f"filter: the collection has no field {name!r:.80}{nearest(name, there)}")


def check_dimension(settings: RetrieverSettings, there: int, ours: int) -> None:
    """Refuse vectors whose size differs from the encoder's."""
    if there != ours:
        raise InputError(
            f"{settings}: the vectors of {settings.vector!r} have {there} numbers, those of the "
            f"encoder {ours}; name the encoder that made them (--encoder), or leave `vector` out"
        )


def _text(value: object) -> str:
    """Text, or a whole number as its digits; a list of texts, as in some systems, is joined."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""

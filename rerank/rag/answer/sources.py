"""The sources of an answer, S1, S2, ..., and the text that shows them to a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rerank.advice.places import Place, place_of
from rerank.rag.answer.prompt_injection import without_orders
from rerank.rag.answer.sentences import without_controls
from rerank.types import RankedPassage


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that an answer may cite."""

    id: str  # S1, S2, ...
    passage: RankedPassage
    place: Place
    evidence: str = field(init=False, repr=False)  # see `evidence_of`

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", evidence_of(self.passage.title, self.passage.text))

    def line(self) -> str:
        """Its line below an answer: `- Document, Section/Page (score: 0.83)`."""
        place = ", ".join(filter(None, (self.place.document, self.place.within)))
        return f"- {place} (score: {self.passage.relevance:.2f})"

    def to_dict(self, quote: str) -> dict[str, Any]:
        """Plain JSON values; `quote` is the sentence that supports the answer."""
        return {
            "id": self.id,
            "doc_id": self.passage.doc_id,
            "document": self.place.document,
            "heading": self.place.heading,
            "page": self.place.page,
            "score": self.passage.relevance,
            "quote": quote,
        }


def evidence_of(title: str, text: str) -> str:
    """The title and text of a passage, without orders to a language model and control signs."""
    return without_orders(without_controls(f"{title}.\n{text}" if title else text), mark="")


def sources_of(passages: Sequence[RankedPassage]) -> list[Source]:
    """The passages as sources S1, S2, ..., in their order."""
    return [Source(f"S{i}", p, place_of(p)) for i, p in enumerate(passages, start=1)]


def context(sources: Sequence[Source], note: str = "") -> str:
    """The sources as a language model sees them, each within a tag that its text cannot close."""
    blocks = [
        f'<source id="{s.id}" document="{_shown(s.place.document)}" '
        f'place="{_shown(s.place.within)}" score="{s.passage.relevance:.2f}">\n'
        f"{_shown(s.passage.text)}\n</source>"
        for s in sources
    ]
    return "\n\n".join(filter(None, (note, *blocks)))


def _shown(text: str) -> str:
    text = without_orders(text)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return text

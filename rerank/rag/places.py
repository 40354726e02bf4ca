"""Where a passage comes from: document, heading and page, from its metadata."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.types import Passage, RankedPassage, metadata_name


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a passage; `heading` and `page` are empty if the metadata has none."""

    document: str
    heading: str
    page: str

    @property
    def within(self) -> str:
        """Heading and page in words, such as `Setup/p. 12`; empty if neither is known."""
        return "/".join(filter(None, (self.heading, f"p. {self.page}" if self.page else "")))


def place_of(passage: Passage | RankedPassage) -> Place:
    """The metadata's `document`, `heading` and `page`.

    Without `document`, the title takes its place, or else the id.
    """
    named = metadata_name(passage.metadata, "document")
    return Place(
        named or passage.title or passage.doc_id,
        metadata_name(passage.metadata, "heading"),
        metadata_name(passage.metadata, "page"),
    )

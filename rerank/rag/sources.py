"""Where a passage comes from: document, heading and page, from what its metadata says."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.types import Passage, RankedPassage, metadata_name


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a passage; `heading` and `page` are empty where the metadata has none."""

    document: str
    heading: str
    page: str

    @property
    def within(self) -> str:
        """Heading and page in words, such as `Setup/p. 12`; empty where neither is known."""
        return "/".join(filter(None, (self.heading, f"p. {self.page}" if self.page else "")))


def place_of(passage: Passage | RankedPassage) -> Place:
    """The metadata's `document`, `heading` and `page`.

    Without `document` it is the title, or the id where there is no title.
    """
    named = metadata_name(passage.metadata, "document")
    return Place(
        named or passage.title or passage.doc_id,
        metadata_name(passage.metadata, "heading"),
        metadata_name(passage.metadata, "page"),
    )

"""Where a passage comes from, and the passages around it in its document."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.retrieval.corpus import Corpus
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
    """The metadata's `document` (or `document_id`), `heading` and `page`.

    Without a document, the title takes its place, or else the id.
    """
    keys = ("document", "document_id")
    named = next(filter(None, (metadata_name(passage.metadata, key) for key in keys)), "")
    return Place(
        named or passage.title or passage.doc_id,
        metadata_name(passage.metadata, "heading"),
        metadata_name(passage.metadata, "page"),
    )


MAX_BYTES = 2**16  # of the passages around it, as the corpus holds them with their metadata
LONGEST_POSITION = 18  # digits; Python refuses to read thousands


@dataclass(frozen=True, slots=True)
class InDocument:
    """A passage and those around it that are of the same document, in their order there."""

    document: str
    passages: tuple[Passage, ...]
    found: int  # position of the passage at the given row
    more_before: bool  # whether passages of the document were left out for lack of room
    more_after: bool


def in_document(corpus: Corpus, row: int, *, max_bytes: int = MAX_BYTES) -> InDocument:
    """The passage at a row of the corpus, with the passages of its document around it.

    These are its neighbours in the corpus of the same document, by `place_of`, nearest first, until
    they have `max_bytes` together; the passage itself is always whole. They are ordered by
    `position` of their metadata if all have one (of at most 18 digits), else as in the corpus.
    """
    if not 0 <= row < len(corpus):
        raise IndexError(row)
    document = place_of(corpus.passage(row)).document
    rows, left = [row], max_bytes
    cut = []  # the nearest row of the document on either side that was left out
    ends = {-1: row, 1: row}
    while ends:
        for way, end in list(ends.items()):
            beside = end + way
            inside = 0 <= beside < len(corpus)
            if not inside or place_of(corpus.passage(beside)).document != document:
                del ends[way]
                continue
            size = int(corpus.offsets[beside + 1] - corpus.offsets[beside])
            if size > left:
                cut.append(beside)
                del ends[way]
                continue
            left, ends[way] = left - size, beside
            rows.append(beside)
    order = sorted(rows + cut)
    passages = {one: corpus.passage(one) for one in order}
    positions = [metadata_name(p.metadata, "position") for p in passages.values()]
    if all(p.isdecimal() and len(p) <= LONGEST_POSITION for p in positions):
        order = [one for _, one in sorted(zip(map(int, positions), order, strict=True))]
    shown = [one for one in order if one not in cut]
    before = [order.index(one) < order.index(row) for one in cut]
    ordered = tuple(passages[one] for one in shown)
    return InDocument(document, ordered, shown.index(row), any(before), not all(before))

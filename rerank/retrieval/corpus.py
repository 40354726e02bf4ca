"""Passages on disk, read by row; where one comes from, and those around it in its document."""

from __future__ import annotations

import json
import mmap
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import FilterError, InputError, nearest
from rerank.filters import Where
from rerank.types import Bools, Ints, Passage, RankedPassage, metadata_name

LINES, OFFSETS = "corpus.jsonl", "offsets.npy"
KEPT = 8192  # passages kept in memory, because many queries find the same ones
LONGEST_KEPT = 16_384  # bytes of such a passage, so that all of them have 128 MiB at most
MAX_BYTES = 2**16  # of the passages around one, as the corpus holds them with their metadata
LONGEST_POSITION = 18  # digits; Python refuses to read thousands


class Corpus:
    """The passages that `write_passages` wrote into a folder. Safe to read from many threads."""

    def __init__(self, folder: Path) -> None:
        # where each passage begins, and the end of the last one, shape (n + 1,)
        self.offsets: Ints = np.load(folder / OFFSETS, allow_pickle=False)
        with (folder / LINES).open("rb") as lines:
            self._bytes = mmap.mmap(lines.fileno(), 0, access=mmap.ACCESS_READ)
        self.text_bytes = len(self._bytes)
        self._kept = lru_cache(maxsize=KEPT)(self._read)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Passage]:
        """All passages by row; they are not cached."""
        return map(self._read, range(len(self)))

    def passage(self, row: int) -> Passage:
        """The passage at a row; the latest ones are kept in memory."""
        short = self.offsets[row + 1] - self.offsets[row] <= LONGEST_KEPT
        return self._kept(row) if short else self._read(row)

    def _read(self, row: int) -> Passage:
        try:
            held = json.loads(self._bytes[self.offsets[row] : self.offsets[row + 1]])
            return Passage(held["_id"], held["title"], held["text"], held["metadata"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"row {row} of the index is not a passage: {error!r}") from None


class Columns:
    """The metadata of all passages by key, read once, at the first filter. Safe for many threads.

    In memory: 4 bytes per passage and key, and each different value.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._lock = threading.Lock()
        self._columns: dict[str, tuple[Ints, list[Any]]] | None = None  # place of value, values

    def allowed(self, where: Where) -> Bools:
        """Whether each passage may be found, shape (n,)."""
        with self._lock:
            columns = self._columns = self._read() if self._columns is None else self._columns
        allowed = np.ones(len(self._corpus), dtype=np.bool_)
        for condition in where.conditions:
            if condition.key not in columns:
                raise FilterError(
                    f"filter: no passage has the metadata {condition.key!r:.80}"
                    f"{nearest(condition.key, columns)}; known: {', '.join(columns) or 'none'}"
                )
            places, values = columns[condition.key]
            allowed &= np.array([condition.holds(value) for value in values])[places]
        return allowed

    def _read(self) -> dict[str, tuple[Ints, list[Any]]]:
        columns: dict[str, tuple[Any, dict[Any, int], list[Any]]] = {}
        for row, passage in enumerate(self._corpus):
            for key, value in passage.metadata.items():
                if key not in columns:  # place 0: a passage without the key
                    columns[key] = np.zeros(len(self._corpus), dtype=np.int32), {}, [None]
                places, known, values = columns[key]
                same = json.dumps(value)  # tells 1, 1.0, true and "1" apart
                if same not in known:
                    known[same] = len(values)
                    values.append(value)
                places[row] = known[same]
        return {key: (places, values) for key, (places, _, values) in columns.items()}


def write_passages(passages: Iterable[Passage], folder: Path) -> int:
    """Write passages into `folder`, one at a time; returns how many."""
    offsets = [0]
    with (folder / LINES).open("wb") as out:
        for p in passages:
            row = {"_id": p.doc_id, "title": p.title, "text": p.text, "metadata": dict(p.metadata)}
            offsets.append(offsets[-1] + out.write(json.dumps(row).encode() + b"\n"))
    np.save(folder / OFFSETS, np.array(offsets, dtype=np.int64))
    return len(offsets) - 1


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

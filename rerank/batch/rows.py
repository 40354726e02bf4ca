"""Rows of an input: the query of each, or why it is rejected; and the lines that a chunk gives."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rerank.assessment.model import CalibratedReranker
from rerank.data.records import FIELDS, id_of, read_id, read_query
from rerank.errors import InputError, RerankError, RetrieverError
from rerank.progress import by_size
from rerank.types import Assessment, Query


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that cannot be scored: its line (from 1), the reason, and its id if it has one.

    `part`: of a folder of part files, the file and the line in it; `line` counts through all.
    """

    line: int
    reason: str
    query_id: str | None = None
    part: tuple[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The line of the file of rejected rows."""
        of_part = self.part and {"part": self.part[0], "line_in_part": self.part[1]}
        named = {} if self.query_id is None else {"_id": self.query_id}
        return {"line": self.line, **(of_part or {}), **named, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A row that can be scored: its line (from 1), and its query; `part` as of a rejected one."""

    line: int
    query: Query
    part: tuple[str, int] | None = None

    def rejected(self, reason: str) -> RejectedRow:
        """The row, rejected after all."""
        return RejectedRow(self.line, reason, self.query.query_id, self.part)


Row = QueryRow | RejectedRow


class Position(NamedTuple):
    """How many lines (or rows) are before it, through all parts; of JSON, bytes of its part too."""

    line: int = 0
    byte: int = 0


class Chunk(NamedTuple):
    """Neighbouring rows of the input, which are read and decoded one at a time, once.

    Chunks depend on the files alone, not on where reading began.
    """

    start: Position
    end: Position
    rows: Iterator[Row]


@dataclass(frozen=True, slots=True)
class RowParser:
    """Parses rows; of a row's metadata it reads the key that names the segment, if there is one.

    None: all of the metadata is read.
    """

    segment_by: str | None = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that are read."""
        return tuple(name for name in FIELDS if name != "metadata" or self.segment_by != "")

    def __call__(self, line: int, row: Mapping[str, Any]) -> Row:
        """The query of a row (see `rerank.data.records.read_query`), or why it has none.

        Ids may repeat: each row is answered separately.
        """
        query_id = None
        try:
            query_id = read_id(row, id_of(row))
            return QueryRow(line, read_query(row, segment_by=self.segment_by))
        except InputError as error:
            return RejectedRow(line, str(error), query_id)


PART_LENGTH = 2**21  # most characters scored together, except for a single longer row
MIN_LENGTH = 2**9  # shorter texts count as this many: a vector takes memory too


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """Lines of predictions and of rejected rows, in the order of the input, and their counts."""

    predictions: bytes
    rejections: bytes
    answered: int
    rejected: int

    def __add__(self, later: ScoredChunk) -> ScoredChunk:
        return ScoredChunk(*(getattr(self, n) + getattr(later, n) for n in self.__slots__))


def score_chunk(model: CalibratedReranker, rows: Iterable[Row]) -> ScoredChunk:
    """The lines of a chunk. A row on which the model fails is rejected.

    Only the rows that are scored together are in memory.

    Raises:
        OSError, MemoryError, RetrieverError: the machine fails, or a search system does.
        Exception: what the model raises, if it fails on a plain question too.
    """
    by_line: dict[int, str | RejectedRow] = {}

    def readable() -> Iterator[QueryRow]:
        for row in rows:
            if isinstance(row, QueryRow):
                yield row
            else:
                by_line[row.line] = row

    for batch in by_size(readable(), lambda row: _length(row.query), PART_LENGTH):
        results = model.assess_each([row.query for row in batch])
        for row, result in zip(batch, results, strict=True):
            if isinstance(result, Assessment):
                by_line[row.line] = _to_line(result.to_dict())
            else:
                by_line[row.line] = _rejected(model, row, result)
    in_order = [by_line[line] for line in sorted(by_line)]
    answers = [line for line in in_order if isinstance(line, str)]
    rejections = [_to_line(row.to_dict()) for row in in_order if isinstance(row, RejectedRow)]
    return ScoredChunk(
        "".join(answers).encode(), "".join(rejections).encode(), len(answers), len(rejections)
    )


def _length(query: Query) -> int:
    """Characters that the models process: the query, and the query again with each passage."""
    texts = [query.text, *(query.text + passage.full_text for passage in query.passages or ())]
    return sum(max(len(text), MIN_LENGTH) for text in texts)


def _rejected(model: CalibratedReranker, row: QueryRow, error: Exception) -> RejectedRow:
    """The row as a rejected one, if the row is the cause, not the machine or the model."""
    if isinstance(error, (OSError, MemoryError, RetrieverError)):
        raise error
    mode = model.mode_of(row.query)
    model.assess([probe for probe in model.probes() if model.mode_of(probe) == mode])
    kind = "" if isinstance(error, RerankError) else f"{type(error).__name__}: "
    reason = f"cannot be scored ({kind}{str(error)[:200]})"
    return row.rejected(reason)


def _to_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"

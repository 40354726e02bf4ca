"""Scores a chunk of rows into its bytes of the two output files; every engine uses it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.batch.rows import QueryRow, RejectedRow, Row
from rerank.errors import RerankError, RetrieverError
from rerank.progress import by_size
from rerank.types import Assessment, Query

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

"""Scores a chunk of rows into its bytes of the two output files; every engine uses it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rerank.assessment.model import CalibratedReranker
from rerank.batch.rows import QueryRow, RejectedRow, Row
from rerank.errors import RetrieverError
from rerank.types import Assessment, Query

PART_LENGTH = 2**21  # most characters scored together, except for a single longer row
LEAST_LENGTH = 2**9  # least length that a text counts as: its vector takes memory too


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """Lines of predictions and of rejected rows, in the order of the input, and their counts."""

    predictions: bytes
    rejected: bytes
    answered: int
    refused: int


def score_chunk(model: CalibratedReranker, rows: Iterable[Row]) -> ScoredChunk:
    """The lines of a chunk. A row on which the model fails is rejected.

    Only the rows that are scored together are in memory.

    Raises:
        OSError, MemoryError, RetrieverError: the machine fails, or a search system does.
        Exception: what the model raises, if it fails on a plain question too.
    """
    found: dict[int, str | RejectedRow] = {}

    def asked() -> Iterator[QueryRow]:
        for row in rows:
            if isinstance(row, QueryRow):
                yield row
            else:
                found[row.line] = row

    for part in _parts(asked()):
        found |= {r.line: s for r, s in zip(part, _answers(model, part), strict=True)}
    whole = [found[line] for line in sorted(found)]
    answers = [line for line in whole if isinstance(line, str)]
    refusals = [_to_line(row.to_dict()) for row in whole if isinstance(row, RejectedRow)]
    return ScoredChunk(
        "".join(answers).encode(), "".join(refusals).encode(), len(answers), len(refusals)
    )


def _parts(asked: Iterable[QueryRow]) -> Iterator[list[QueryRow]]:
    part: list[QueryRow] = []
    held = 0
    for row in asked:
        length = _length(row.query)
        if part and held + length > PART_LENGTH:
            yield part
            part, held = [], 0
        part.append(row)
        held += length
    if part:
        yield part


def _length(query: Query) -> int:
    """Characters that the models process: the query, and the query again with each passage."""
    whole = max(len(query.text), LEAST_LENGTH)
    for passage in query.passages or ():
        whole += max(len(query.text) + len(passage.full_text), LEAST_LENGTH)
    return whole


def _answers(model: CalibratedReranker, part: Sequence[QueryRow]) -> list[str | RejectedRow]:
    return [
        _to_line(found.to_dict()) if isinstance(found, Assessment) else _rejected(model, row, found)
        for row, found in zip(part, model.assess_each([row.query for row in part]), strict=True)
    ]


def _rejected(model: CalibratedReranker, row: QueryRow, error: Exception) -> RejectedRow:
    """The row as a rejected one, if the row is the cause, not the machine or the model."""
    if isinstance(error, (OSError, MemoryError, RetrieverError)):
        raise error
    model.assess([probe for probe in model.probes() if probe.mode == row.query.mode])
    reason = f"cannot be scored ({type(error).__name__}: {str(error)[:200]})"
    return RejectedRow(row.line, reason, row.query.query_id)


def _to_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"

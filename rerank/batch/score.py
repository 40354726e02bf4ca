"""A chunk of rows to the bytes that stand for it in the two files: what every engine computes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rerank.assessor import CalibratedReranker
from rerank.batch.rows import Asked, Item, Rejected, Row
from rerank.types import Assessment, Given, Passage, Query

PART_LENGTH = 2**21  # characters that are scored together, at most, but for a single longer row
LEAST_LENGTH = 2**9  # what a text counts, however short: its vector takes memory too
PROBE = Query("probe", "does the model work")
PROBES: dict[bool, Item] = {
    False: PROBE,
    True: Given(PROBE, (Passage("0", "", "The model works."),)),
}


@dataclass(frozen=True, slots=True)
class Scored:
    """Lines of predictions and of rejected rows, in the order of the input, and their counts."""

    predictions: bytes
    rejected: bytes
    answered: int
    refused: int


def score(model: CalibratedReranker, rows: Iterable[Row]) -> Scored:
    """The lines of a chunk. A row that the model fails on is a rejected row.

    Of the rows, those are in memory that are scored together.

    Raises:
        OSError, MemoryError: the machine fails.
        Exception: what the model raises, where it fails on a plain question too.
    """
    found: dict[int, str | Rejected] = {}

    def asked() -> Iterator[Asked]:
        for row in rows:
            if isinstance(row, Asked):
                yield row
            else:
                found[row.line] = row

    for part in _parts(asked()):
        found |= {r.line: s for r, s in zip(part, _answers(model, part), strict=True)}
    whole = [found[line] for line in sorted(found)]
    answers = [line for line in whole if isinstance(line, str)]
    refusals = [_to_line(row.to_dict()) for row in whole if isinstance(row, Rejected)]
    return Scored(
        "".join(answers).encode(), "".join(refusals).encode(), len(answers), len(refusals)
    )


def _parts(asked: Iterable[Asked]) -> Iterator[list[Asked]]:
    part: list[Asked] = []
    held = 0
    for row in asked:
        length = _length(row.item)
        if part and held + length > PART_LENGTH:
            yield part
            part, held = [], 0
        part.append(row)
        held += length
    if part:
        yield part


def _length(item: Item) -> int:
    """Characters that the models have before them: the query, and again with each passage."""
    if isinstance(item, Query):
        return max(len(item.text), LEAST_LENGTH)
    asked = len(item.query.text)
    return sum(max(asked + len(p.full_text), LEAST_LENGTH) for p in item.passages) + LEAST_LENGTH


def _answers(model: CalibratedReranker, part: Sequence[Asked]) -> list[str | Rejected]:
    try:
        return [*_lines(model, [row.item for row in part])]
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if len(part) > 1:  # one of them it is; each alone
            return [_answers(model, [row])[0] for row in part]
        item = part[0].item
        _lines(model, [PROBES[isinstance(item, Given)]])
        query = item.query if isinstance(item, Given) else item
        reason = f"cannot be scored ({type(error).__name__}: {str(error)[:200]})"
        return [Rejected(part[0].line, reason, query.query_id)]


def _lines(model: CalibratedReranker, items: Sequence[Item]) -> list[str]:
    """A line an item, in their order; both kinds may be among them."""
    asked = [item for item in items if isinstance(item, Query)]
    given = [item for item in items if isinstance(item, Given)]
    of_asked = iter(model.assess(model.rank(asked)) if asked else ())
    of_given = iter(model.assess_given(given) if given else ())
    found: list[Assessment] = [
        next(of_given if isinstance(item, Given) else of_asked) for item in items
    ]
    return [_to_line(assessment.to_dict()) for assessment in found]


def _to_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"

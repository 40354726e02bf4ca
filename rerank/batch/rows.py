"""One row of an input: its query, or why it is rejected. It knows nothing of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rerank.data.checks import json_type
from rerank.data.records import FIELDS, id_of, read_id, read_query
from rerank.errors import InputError
from rerank.types import Query


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that cannot be scored: its line (from 1), the reason, and its id if it has one."""

    line: int
    reason: str
    query_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The line of the file of rejected rows."""
        named = {} if self.query_id is None else {"_id": self.query_id}
        return {"line": self.line, **named, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A row that can be scored: its line (from 1), and its query."""

    line: int
    query: Query


Row = QueryRow | RejectedRow


@dataclass(frozen=True, slots=True)
class RowParser:
    """Parses rows; of a row's metadata it reads the key that names the segment, if there is one."""

    segment_by: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a row that are read."""
        return tuple(name for name in FIELDS if name != "metadata" or self.segment_by)

    def __call__(self, line: int, row: object) -> Row:
        """The query of a decoded row (see `rerank.data.records.read_query`), or why it has none.

        Ids may repeat: each row is answered separately.
        """
        if not isinstance(row, Mapping):
            return RejectedRow(line, f"expected a JSON object, got {json_type(row)}")
        try:
            query_id = read_id(row, id_of(row))
        except InputError as error:
            return RejectedRow(line, str(error))
        try:
            return QueryRow(line, read_query(row, segment_by=self.segment_by))
        except InputError as error:
            return RejectedRow(line, str(error), query_id)

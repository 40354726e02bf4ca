"""LanceDB: a table in a folder on this machine, with full-text and cosine search."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from rerank.assessment.sources.other_system import Hit
from rerank.errors import FilterError, InputError, RetrieverError, optional
from rerank.filters import Condition, Where, kind_of
from rerank.retrieval.dense import Vectors
from rerank.systems.settings import RetrieverSettings, check_filtered
from rerank.types import Passage

with optional():
    import lancedb
    from lancedb.query import MatchQuery, MultiMatchQuery

TEXTS = ("string", "json")  # in the name of a type that keyword search can read
NOW = timedelta(0)  # each search looks first whether another program has changed the table
KINDS = {"string": "text", "large_string": "text", "bool": "true or false"}
KINDS |= dict.fromkeys(("int", "uint", "float", "double", "halffloat"), "number")  # of Arrow
OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def _sql(value: str | float) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    whole = isinstance(value, float) and value.is_integer()
    return repr(int(value) if whole else value).lower()


class LanceTable:
    """A table with a column of fixed-size vectors and, for keyword search, text columns."""

    def __init__(self, settings: RetrieverSettings, key: str) -> None:
        self.settings = settings
        self._key = key

    def keyword(self, query: str, count: int, where: Where | None = None) -> Sequence[Hit]:
        """By BM25; a full-text index makes it fast."""
        columns = list(self.settings.keyword)
        one = len(columns) == 1
        match = MatchQuery(query, columns[0]) if one else MultiMatchQuery(query, columns)
        rows = self._rows(self._table.search(match, query_type="fts"), "_score", count, where)
        return self.settings.hits((row, row["_score"]) for row in rows)

    def vector(self, vector: Vectors, count: int, where: Where | None = None) -> Sequence[Hit]:
        """By cosine."""
        column = self.settings.vector
        there = self._table.schema.field(column).type.list_size
        self.settings.check_dimension(there, len(vector))
        search = self._table.search(vector, vector_column_name=column).distance_type("cosine")
        rows = self._rows(search, "_distance", count, where)
        return self.settings.hits((row, 1.0 - row["_distance"]) for row in rows)

    def passages(self, ids: Sequence[str]) -> Sequence[Passage]:
        """By the id column, which holds text or whole numbers."""
        column = self.settings.id
        text = "string" in str(self._table.schema.field(column).type)
        asked = [_sql(i) for i in ids] if text else [i for i in ids if i.isdecimal()]
        if not asked:
            return []
        held = f"`{column}` IN ({', '.join(asked)})"  # in backticks: its name may hold spaces
        search = self._table.search().where(held).limit(len(ids))
        rows = self._run_search(search.select(list(self.settings.fields)))
        return [p for row in rows if (p := self.settings.passage(row))]

    @cached_property
    def _table(self) -> Any:
        s = self.settings
        if not s.remote and not Path(s.url).is_dir():
            raise InputError(f"{s}: there is no such folder")
        try:
            key = {"api_key": self._key} if self._key else {}
            tables = lancedb.connect(s.url, read_consistency_interval=NOW, **key)
            table = tables.open_table(s.collection)
        except ValueError as error:
            raise InputError(f"{s}: {error}") from None
        except Exception as error:
            raise RetrieverError(f"{s}: it cannot be opened: {error}") from None
        s.check_fields([*s.fields, *s.keyword, s.vector], table.schema.names)
        if s.vector and not hasattr(table.schema.field(s.vector).type, "list_size"):
            raise InputError(f"{s}: its column {s.vector!r} holds no vectors of a fixed size")
        for name in s.keyword:
            kind = str(table.schema.field(name).type)
            if not any(text in kind for text in TEXTS):
                raise InputError(f"{s}: its column {name!r} of `keyword` holds no text, but {kind}")
        return table

    def _rows(
        self, search: Any, score: str, count: int, where: Where | None
    ) -> list[dict[str, Any]]:
        if where:
            search = search.where(" AND ".join(map(self._held, where.conditions)), prefilter=True)
        return self._run_search(search.limit(count).select([*self.settings.fields, score]))

    def _held(self, condition: Condition) -> str:
        """The condition in SQL; a column of another kind of values fits none."""
        column = condition.key
        check_filtered(column, self._table.schema.names)
        kind = self._table.schema.field(column).type
        several = hasattr(kind, "value_type")
        of_column = KINDS.get(str(kind.value_type if several else kind).strip("0123456789"), "")
        if not of_column or (several and condition.bounds) or hasattr(kind, "list_size"):
            raise FilterError(f"filter: {column!r} is of {kind}, which cannot be filtered so")
        compared = *condition.values, *(bound for _, bound in condition.bounds)
        parts = any(isinstance(x, float) and not x.is_integer() for x in compared)
        name = f"CAST(`{column}` AS DOUBLE)" if parts else f"`{column}`"
        if condition.bounds:
            if condition.kind != of_column:
                return "false"
            bounds = condition.bounds
            return " AND ".join(f"{name} {OPERATORS[n]} {_sql(b)}" for n, b in bounds)
        fitting = [_sql(value) for value in condition.values if kind_of(value) == of_column]
        values = ", ".join(fitting)
        if not fitting:
            return "false"
        return f"array_has_any(`{column}`, [{values}])" if several else f"{name} IN ({values})"

    def _run_search(self, search: Any) -> list[dict[str, Any]]:
        try:
            limit = timedelta(seconds=self.settings.timeout)
            return list(search.to_list(timeout=limit))
        except Exception as error:
            raise RetrieverError(f"{self.settings}: the search failed: {error}") from None

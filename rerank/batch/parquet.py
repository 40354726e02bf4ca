"""Parquet: inputs read a few rows at a time, and predictions written a row group at a time."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rerank.batch.chunks import BUFFER, CHUNK_ROWS, Chunk, Position
from rerank.batch.rows import Rejected, Row, parse
from rerank.data.records import FIELDS, LONGEST_RECORD, QUERY
from rerank.errors import InputError

MOST_ROW_BYTES = 4 * LONGEST_RECORD  # as Arrow holds a row: four bytes a character at most
GROUP_ROWS = 16_384  # rows of a row group that we write, at most
GROUP_BYTES = 2**25  # likewise its bytes in memory, but for the last 64 rows
SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("confidence", pa.float64()),
        ("sufficiency", pa.float64()),
        ("sufficiency_at", pa.list_(pa.float64())),
        ("level", pa.string()),
        ("verdict", pa.string()),
        ("accepted", pa.bool_()),
        ("certified", pa.bool_()),
        ("reasons", pa.list_(pa.string())),
        (
            "ranking",
            pa.list_(
                pa.struct(
                    [
                        ("doc_id", pa.string()),
                        ("logit", pa.float64()),
                        ("relevance", pa.float64()),
                        ("bm25", pa.float64()),
                        ("dense", pa.float64()),
                    ]
                )
            ),
        ),
    ]
)


class ParquetSource:
    """An open Parquet file, of which only the columns that we know are read.

    In memory: 64 rows and a page of each column, whatever the size of the row groups.

    Raises:
        InputError: no Parquet, or `_id` or `query` is missing or there twice.
    """

    def __init__(self, file: IO[bytes], path: Path, segment_by: str = "") -> None:
        self._path = path
        self._correct_by = segment_by
        try:
            self._file = pq.ParquetFile(
                file, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True
            )
            names = self._file.schema_arrow.names
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{path}: not a readable Parquet file ({_brief(error)})") from None
        wrong = [c for c in FIELDS if names.count(c) > 1]
        if wrong or "_id" not in names or not set(QUERY) & set(names):
            raise InputError(f"{path}: expected columns _id and query, once each; got {names[:20]}")
        self._columns = [c for c in FIELDS if c in names and (c != "metadata" or segment_by)]
        meta = self._file.metadata
        self._groups = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        self.total: int = sum(self._groups)
        self._ahead = self.chunks(Position())
        self._next = Position()

    def chunks(self, start: Position) -> Iterator[Chunk]:
        """Chunks of 64 rows, fewer at the end of a row group.

        Raises:
            InputError: the file is damaged from some row on.
        """
        first = 0
        for group, length in enumerate(self._groups):
            if first + length > start.line:
                yield from self._chunks(group, first, start.line)
            first += length

    def _chunks(self, group: int, first: int, start: int) -> Iterator[Chunk]:
        """The chunks of a row group, whose first row is `first`, from the row `start` on."""
        row, end, held = first, first, list[pa.RecordBatch]()
        for batch in self._batches(group):
            taken = 0
            while taken < batch.num_rows:  # batches may be cut anywhere, chunks are not
                held.append(batch.slice(taken, CHUNK_ROWS - (end - row)))
                taken += held[-1].num_rows
                end += held[-1].num_rows
                if end - row == CHUNK_ROWS or end == first + self._groups[group]:
                    if row >= start:
                        yield Chunk(Position(row), Position(end), held)
                    row, held = end, []
        if row != first + self._groups[group]:
            raise InputError(f"{self._path}: row group {group + 1} ends before its last row")

    def starts(self, start: Position) -> Iterator[Position]:
        """Where the chunks start, by the lengths of the row groups."""
        first = 0
        for length in self._groups:
            for row in range(first, first + length, CHUNK_ROWS):
                if row >= start.line:
                    yield Position(row)
            first += length

    def at(self, start: Position) -> Chunk:
        """The chunk that starts there: what lies before it in its row group is passed over."""
        if start < self._next or not self._same_group(start):
            self._ahead = self.chunks(start)
        chunk = next(c for c in self._ahead if c.start == start)
        self._next = chunk.end
        return chunk

    def _same_group(self, start: Position) -> bool:
        ends = list(accumulate(self._groups))
        return bisect_right(ends, start.line) == bisect_right(ends, self._next.line)

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._file.iter_batches(
                CHUNK_ROWS, row_groups=[group], columns=self._columns, use_threads=False
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"{self._path}: row group {group + 1} cannot be read ({_brief(error)})"
            ) from None

    def rows(self, chunk: Chunk) -> list[Row]:
        """The chunk's rows, decoded; a value that Python cannot hold rejects its own row only."""
        found: list[Row] = []
        for batch in chunk.raw:
            first = chunk.start.line + len(found) + 1
            if batch.nbytes > LONGEST_RECORD:  # not all at once: each text twice would be too much
                found += [self._one(batch, i, first + i) for i in range(batch.num_rows)]
                continue
            try:
                found += [self._parse(first + i, v) for i, v in enumerate(batch.to_pylist())]
            except Exception:  # a value of any type can fail in its own way
                found += [self._one(batch, i, first + i) for i in range(batch.num_rows)]
        return found

    def _parse(self, line: int, row: object) -> Row:
        return parse(line, row, segment_by=self._correct_by)

    def _one(self, batch: pa.RecordBatch, i: int, line: int) -> Row:
        size = batch.slice(i, 1).nbytes
        if size > MOST_ROW_BYTES:
            return Rejected(line, f"the row has {size} bytes, at most {MOST_ROW_BYTES} are taken")
        row = _values(batch, i, line)
        return row if isinstance(row, Rejected) else self._parse(line, row)


def _values(batch: pa.RecordBatch, i: int, line: int) -> dict[str, Any] | Rejected:
    """A row's values one by one, so that one which cannot be read is told by its name."""
    found: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            found[name] = column[i].as_py()
        except Exception as error:
            query_id = found.get("_id")
            named = query_id if isinstance(query_id, str) else None
            return Rejected(line, f"{name!r} cannot be read ({_brief(error)})", named)
    return found


def write_parquet(lines: Iterable[bytes], path: Path) -> None:
    """Write predictions, JSON objects as the contract has them, into one Parquet file.

    The same lines give the same bytes. In memory: one row group, 16,384 rows or 32 MiB.
    """
    rows = iter(lines)
    options = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, SCHEMA, **options) as writer:
        held: list[pa.RecordBatch] = []
        while part := [json.loads(line) for line in islice(rows, CHUNK_ROWS)]:
            held.append(pa.RecordBatch.from_pylist(part, schema=SCHEMA))
            full = sum(b.num_rows for b in held) + CHUNK_ROWS > GROUP_ROWS
            if full or sum(b.nbytes for b in held) >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held), row_group_size=GROUP_ROWS)
                held = []
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=GROUP_ROWS)


def _brief(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]

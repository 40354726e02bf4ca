"""Parquet: reads inputs a few rows at a time, and writes predictions a row group at a time."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rerank.batch.rows import CHUNK_ROWS, Part, RejectedRow, Row
from rerank.batch.table import OUTPUT_EXAMPLE
from rerank.data.lines import opened
from rerank.data.records import FIELDS, LONGEST_RECORD, QUERY
from rerank.errors import InputError, one_line
from rerank.storage.files import BUFFER

MAX_ROW_BYTES = 4 * LONGEST_RECORD  # of a row's values: at most four bytes per character
MAX_UNPACKED = 2**26  # bytes that a row group may always unpack to, however small the file
MAX_RATIO = 100  # times the file's size that a larger row group may unpack to
GROUP_ROWS = 16_384  # rows of a row group that we write
GROUP_BYTES = 2**25  # bytes of it in memory, without its last 64 rows
SCHEMA = pa.table(OUTPUT_EXAMPLE).schema
OF_OTHER_STAGES = [  # a passage
    ("doc_id", pa.string()),
    ("relevance", pa.float64()),
    ("scores", pa.map_(pa.string(), pa.float64())),
]


def has_column(path: Path, name: str) -> bool:
    """Whether the file is readable as Parquet and has a column of this name."""
    try:
        return name in pq.read_schema(path).names
    except (pa.ArrowException, OSError, ValueError):
        return False


@dataclass(eq=False)
class ParquetRows(Part):
    """The rows of a Parquet file, of which only the known columns are read.

    Memory: one row, and a page and the dictionary of each column. Texts stay dictionary indices
    until the length of a row is known.
    """

    def __post_init__(self) -> None:
        path = self.path
        with opened(path) as raw:
            try:
                file = pq.ParquetFile(raw)
                names, meta = file.schema_arrow.names, file.metadata
                leaves = [file.schema.column(i) for i in range(len(file.schema))]
            except (pa.ArrowException, OSError, ValueError) as error:
                why = f"not a readable Parquet file ({one_line(error)})"
                raise InputError(f"{path}: {why}") from None
            _check_sizes(path, meta, os.fstat(raw.fileno()).st_size)
        wrong = [c for c in FIELDS if names.count(c) > 1]
        if wrong or not {"_id", "id"} & set(names) or not set(QUERY) & set(names):
            raise InputError(f"{path}: expected columns _id and query, once each; got {names[:20]}")
        read = (c for c in FIELDS if c != "metadata" or self.segment_by != "")
        self._columns = [c for c in read if c in names]
        self._texts = [c.path for c in leaves if c.physical_type == "BYTE_ARRAY"]
        sizes = (meta.row_group(i).num_rows for i in range(meta.num_row_groups))
        self._ends: list[int] = [*accumulate(sizes, initial=self.before)]  # and the first's start
        self.total = self._ends[-1] - self.before

    def begin(self, start: int) -> int:
        """The start of the row group that holds the next row."""
        return self._ends[bisect_right(self._ends, start) - 1]

    def read(self, begin: int) -> Iterator[pa.RecordBatch]:
        """The rows, each as a batch."""
        with opened(self.path) as raw:
            file = pq.ParquetFile(
                raw,
                buffer_size=BUFFER,
                pre_buffer=False,
                page_checksum_verification=True,
                read_dictionary=self._texts,
            )
            columns = {"columns": self._columns, "use_threads": False}
            for group, (first, end) in enumerate(pairwise(self._ends)):
                if first < begin:
                    continue
                where, read = f"{self.path}: row group {group + 1}", 0
                try:
                    for batch in file.iter_batches(1, row_groups=[group], **columns):
                        yield batch
                        read += 1
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise InputError(f"{where} cannot be read ({one_line(error)})") from None
                if read != end - first:
                    raise InputError(f"{where} ends before its last row")

    def decode(self, line: int, raw: pa.RecordBatch) -> Row:
        """The query of a row; a value that Python cannot hold rejects it."""
        try:
            size = sum(_size(column) for column in raw.columns)
        except (pa.ArrowException, IndexError) as error:
            raise InputError(f"{self.path}: row {line} is damaged ({one_line(error)})") from None
        if size > MAX_ROW_BYTES:
            return RejectedRow(line, f"the row has {size} bytes, at most {MAX_ROW_BYTES} are taken")
        record: dict[str, Any] = {}
        for name, column in zip(raw.schema.names, raw.columns, strict=True):
            try:
                record[name] = column[0].as_py()
            except Exception as error:  # each type of value can fail in its own way
                query_id = record.get("_id")
                named = query_id if isinstance(query_id, str) else None
                return RejectedRow(line, f"{name!r} cannot be read ({one_line(error)})", named)
        return self.parse(line, record)


TEXTS = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


def _size(column: pa.Array) -> int:
    """Bytes of a column's values if every text were decoded; it decodes none."""
    kind = column.type
    if pa.types.is_dictionary(kind) and any(test(kind.value_type) for test in TEXTS):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(pc.sum(lengths).as_py() or 0) + int(column.indices.nbytes)
    if pa.types.is_struct(kind):
        return sum(map(_size, column.flatten()))
    if pa.types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return sum(_size(child[first:last]) for child in (column.keys, column.items))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _size(column.flatten())
    return int(column.nbytes)


def _check_sizes(path: Path, meta: Any, held: int) -> None:
    """Refuse a file that would fill the memory before one of its rows can be checked."""
    # no sizes of columns are read: pyarrow ends the process if those are damaged
    max_size = max(MAX_UNPACKED, MAX_RATIO * held)
    for number in range(meta.num_row_groups):
        if (size := meta.row_group(number).total_byte_size) > max_size:
            of_file = f"of a file of {held} at most {max_size} are read"
            raise InputError(f"{path}: row group {number + 1} unpacks to {size} bytes, {of_file}")


def write_parquet(
    lines: Iterable[bytes], path: Path, *, other_stages: bool = False, two_models: bool = False
) -> None:
    """Write predictions, given as JSON lines of the documented format, into one Parquet file.

    `other_stages`: the passages have the scores of another system's stages. `two_models`: there is
    a column that says which one has answered. The same lines give the same bytes. Memory: one row
    group of 16,384 rows or 32 MiB.
    """
    rows, schema = iter(lines), SCHEMA
    last = schema.get_field_index("ranking")
    if other_stages:
        schema = schema.set(last, pa.field("ranking", pa.list_(pa.struct(OF_OTHER_STAGES))))
    if two_models:
        schema = schema.insert(last, pa.field("answered_by", pa.string()))
    options = {"compression": "zstd", "write_page_checksum": True}
    with pq.ParquetWriter(path, schema, **options) as writer:
        held: list[pa.RecordBatch] = []
        while chunk := [json.loads(line) for line in islice(rows, CHUNK_ROWS)]:
            held.append(pa.RecordBatch.from_pylist(chunk, schema=schema))
            full = sum(b.num_rows for b in held) + CHUNK_ROWS > GROUP_ROWS
            if full or sum(b.nbytes for b in held) >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(held), row_group_size=GROUP_ROWS)
                held = []
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=GROUP_ROWS)

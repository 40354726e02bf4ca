"""Memory does not grow with the input: ten times what may be held goes through."""

from __future__ import annotations

import json
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import run_python

from rerank.batch.input import open_input
from rerank.errors import InputError

Run = Any  # the session's run, see conftest
LIMIT = 32 * 2**20  # bytes that the process may grow by
ROWS = 11_500
LONG = "x" * 30_000  # of each row
ASKED = 20  # rows that are scored

CODE = """
from pathlib import Path
from rerank.assessment.model import CalibratedReranker
from rerank.batch.job import rescore

def memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))

folder = Path({folder!r})
model = CalibratedReranker.load({model!r})
rescore(model, folder / "few.jsonl", folder / "warm.{ending}")
Path("/proc/self/clear_refs").write_text("5")  # the peak is measured from here on
before = memory("VmRSS")
done = rescore(model, folder / "large.{ending}", folder / "out.{ending}")
print(done.answered, done.rejected, memory("VmHWM") - before)
"""


def text(i: int) -> str:
    """A question of every so many rows; the others are refused."""
    return "sort an array" if i % (ROWS // ASKED) == 0 else ""


def write_jsonl(path: Path) -> None:
    with path.open("w") as file:
        for i in range(ROWS):
            file.write(json.dumps({"_id": str(i), "text": text(i), "metadata": LONG}) + "\n")


def write_parquet(path: Path) -> None:
    """One row group, not compressed: passages that no question comes with, but for a few rows."""
    schema = pa.schema(
        [("_id", pa.int64()), ("text", pa.string()), ("passages", pa.list_(pa.string()))]
    )
    with pq.ParquetWriter(
        path, schema, compression="none", use_dictionary=False, write_batch_size=32
    ) as writer:
        ids = list(range(ROWS))
        own = pa.array([["short"] if text(i) else [LONG] for i in ids], schema.field(2).type)
        writer.write_table(
            pa.table([pa.array(ids), pa.array([text(i) for i in ids]), own], schema=schema),
            row_group_size=ROWS,
        )


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_input_ten_times_larger_than_may_be_held(run: Run, tmp_path: Path, ending: str) -> None:
    """The process grows by a chunk and what scoring it takes, not by what the file holds."""
    (write_jsonl if ending == "jsonl" else write_parquet)(tmp_path / f"large.{ending}")
    assert (tmp_path / f"large.{ending}").stat().st_size > 10 * LIMIT
    few = '{"_id": "a", "text": "sort an array"}\n{"_id": "b", "text": "x", "passages": ["y"]}\n'
    (tmp_path / "few.jsonl").write_text(few)
    code = CODE.format(folder=str(tmp_path), model=str(run.folder), ending=ending)
    answered, rejected, grown = map(int, run_python(code).split()[-3:])
    assert (answered, rejected) == (ASKED, ROWS - ASKED)
    assert grown < LIMIT


LIMITED = """
import resource
from pathlib import Path
from rerank.assessment.model import CalibratedReranker
from rerank.batch.job import rescore

folder = Path({folder!r})
model = CalibratedReranker.load({model!r})
rescore(model, folder / "few.jsonl", folder / "warm.jsonl")
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + {room}, -1))
done = rescore(model, folder / {name!r}, folder / "out.jsonl")
print(done.answered, done.rejected)
"""
ROOM = 768 * 2**20  # bytes; of docs/rescoring.md 512 MiB, and what allocators take beforehand


def _long_passages(path: Path) -> tuple[int, int]:
    """Two rows of four passages of 300,000 characters, no two words in a row alike."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 9))) for _ in range(20_000)]
    with path.open("w") as file:
        for i in range(2):
            passages = [" ".join(draw.choices(words, k=50_000))[:300_000] for _ in range(4)]
            file.write(json.dumps({"_id": str(i), "text": "median", "passages": passages}) + "\n")
    return 2, 0


def _repeated(path: Path) -> tuple[int, int]:
    """A few KiB that say 256 times the same 8 MiB, and one row that says it 1,000 times."""
    rows = [["x" * 2**23]] * 256 + [["x" * 2**23] * 1_000]
    offsets = [0, *accumulate(map(len, rows))]
    said = pa.DictionaryArray.from_arrays(pa.array([0] * offsets[-1], pa.int32()), [rows[0][0]])
    passages = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), said)
    ids = [str(i) for i in range(len(rows))]
    columns = {"_id": ids, "text": ["median"] * len(rows), "passages": passages}
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 20_000
    return 0, len(rows)


@pytest.mark.parametrize(
    ("write", "name"), [(_long_passages, "long.jsonl"), (_repeated, "bomb.parquet")]
)
def test_long_rows_fit_under_a_limit_of_memory(
    run: Run, tmp_path: Path, write: Any, name: str
) -> None:
    """Rows are bounded by bytes: the address space may grow by what the documentation says."""
    expected = write(tmp_path / name)
    few = '{"_id": "a", "text": "sort an array"}\n{"_id": "b", "text": "x", "passages": ["y"]}\n'
    (tmp_path / "few.jsonl").write_text(few)
    code = LIMITED.format(folder=str(tmp_path), model=str(run.folder), name=name, room=ROOM)
    assert tuple(map(int, run_python(code).split()[-2:])) == expected


def test_a_row_group_that_unpacks_to_many_times_the_file_is_refused(tmp_path: Path) -> None:
    """A hundred megabytes of one letter, told before they are unpacked."""
    path = tmp_path / "bomb.parquet"
    row = pa.table({"_id": ["a"], "text": ["x"], "passages": [["y" * 10**8]]})
    pq.write_table(row, path, compression="zstd", use_dictionary=False)
    with pytest.raises(InputError, match=r"row group 1 unpacks to 1\d{8} bytes"):
        open_input(path)

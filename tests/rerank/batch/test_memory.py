"""Memory does not grow with the input: ten times what may be held goes through."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Run = Any  # the session's run, see conftest
LIMIT = 32 * 2**20  # bytes that the process may grow by
ROWS = 11_500
LONG = "x" * 30_000  # of each row
ASKED = 20  # rows that are scored

CODE = """
from pathlib import Path
from rerank.assessment.model import CalibratedReranker
from rerank.batch import rescore

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
def test_an_input_ten_times_larger_than_may_be_held(
    run: Run, run_python: Callable[..., str], tmp_path: Path, ending: str
) -> None:
    """The process grows by a chunk and what scoring it takes, not by what the file holds."""
    (write_jsonl if ending == "jsonl" else write_parquet)(tmp_path / f"large.{ending}")
    assert (tmp_path / f"large.{ending}").stat().st_size > 10 * LIMIT
    few = '{"_id": "a", "text": "sort an array"}\n{"_id": "b", "text": "x", "passages": ["y"]}\n'
    (tmp_path / "few.jsonl").write_text(few)
    code = CODE.format(folder=str(tmp_path), model=str(run.folder), ending=ending)
    answered, rejected, grown = map(int, run_python(code).split()[-3:])
    assert (answered, rejected) == (ASKED, ROWS - ASKED)
    assert grown < LIMIT

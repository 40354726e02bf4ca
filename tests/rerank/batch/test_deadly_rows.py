"""Rows at which the process ends: a rescoring that is started again and again comes to its end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import run_python

from rerank.assessment.model import CalibratedReranker
from rerank.batch.job import rescore

Run = Any  # the session's run, see conftest
REASON = "scoring this row ended the process twice"
ROWS, CHUNK = 10, 8  # of one input, and of a chunk
DEADLY = {2: "deadly", 6: "deadly, too", 9: "deadly as well"}  # of two chunks
MOST_RUNS = 12

# Each run is a fork of a process that holds the model; `end` may end it before a text is encoded.
CODE = """
import os
from pathlib import Path
from rerank.assessment.model import CalibratedReranker
from rerank.batch import parquet, rows
from rerank.batch.job import rescore

rows.CHUNK_ROWS = parquet.CHUNK_ROWS = {chunk}
folder, model = Path({folder!r}), CalibratedReranker.load({model!r})
encode = model.pipeline.encoder.encode
model.search("median")  # opens the networks, once for all runs

{end}

def scored(texts):
    for text in texts:
        end(text)
    return encode(texts)

model.pipeline.encoder.encode = scored
for number in range({most}):
    child = os.fork()
    if not child:
        try:
            rescore(model, folder / "rows.{ending}", folder / "out.{ending}")
        except OSError as error:
            os._exit(2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code)
    if not code:
        break
"""


def codes_of_runs(end: str, model: Path, folder: Path, ending: str) -> list[int]:
    """The exit codes of runs, the same command again and again, until one ends with 0."""
    numbers = {"most": MOST_RUNS, "chunk": CHUNK}
    code = CODE.format(folder=str(folder), model=str(model), ending=ending, end=end, **numbers)
    return [int(code) for code in run_python(code).split()]


def write_rows(path: Path, texts: list[str]) -> None:
    """Queries of these texts, every third with passages of its own."""
    rows = [
        {"_id": str(i), "text": text, "passages": None if i % 3 else ["one", f"about {text}"]}
        for i, text in enumerate(texts)
    ]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        given = [{k: v for k, v in row.items() if v is not None} for row in rows]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in given))


@pytest.fixture
def expected(run: Run, tmp_path: Path, ending: str) -> tuple[bytes, list[int]]:
    """The predictions of the rows that end no process, and which rows do; `rows` has them all."""
    texts = [f"the median of array {i}" for i in range(ROWS)]
    harmless = [text for i, text in enumerate(texts) if i not in DEADLY]
    model = CalibratedReranker.load(run.folder)
    write_rows(tmp_path / f"all.{ending}", texts)
    rescore(model, tmp_path / f"all.{ending}", tmp_path / "all.out.jsonl")
    lines = (tmp_path / "all.out.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == len(harmless) + len(DEADLY)
    write_rows(tmp_path / f"rows.{ending}", [DEADLY.get(i, t) for i, t in enumerate(texts)])
    return b"".join(line for i, line in enumerate(lines) if i not in DEADLY), [*DEADLY]


def found(folder: Path, ending: str) -> tuple[bytes, list[dict[str, Any]]]:
    """The predictions as lines, and the rejected rows."""
    out = folder / f"out.{ending}"
    side = folder / f"out.{ending}.rejected.jsonl"
    rejected = [json.loads(line) for line in side.read_text().splitlines()] if side.exists() else []
    if ending == "jsonl":
        return out.read_bytes(), rejected
    rows = pq.read_table(out).to_pylist()
    return "".join(f"{json.dumps(r, ensure_ascii=False)}\n" for r in rows).encode(), rejected


@pytest.mark.parametrize(
    ("ending", "way", "code"),
    [
        ("jsonl", "os.abort()", -signal.SIGABRT),
        ("parquet", "os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("jsonl", "raise MemoryError", 2),
    ],
)
def test_a_row_that_ends_the_process_twice_is_rejected(
    run: Run, tmp_path: Path, ending: str, way: str, code: int, expected: tuple[bytes, list[int]]
) -> None:
    """The batch ends; the other rows have the predictions of a batch without such rows."""
    predictions, deadly = expected
    end = f"def end(text):\n    if 'deadly' in text:\n        {way}"
    codes = codes_of_runs(end, run.folder, tmp_path, ending)
    chunks = 2  # in each the first end blames no row yet
    assert codes == [code] * (chunks + 2 * len(deadly)) + [0]
    lines, rejected = found(tmp_path, ending)
    assert lines == predictions
    assert [(r["line"], r["_id"], r["reason"]) for r in rejected] == [
        (i + 1, str(i), REASON) for i in deadly
    ]
    assert not (tmp_path / f".out.{ending}.rescore").exists()


@pytest.mark.parametrize("ending", ["jsonl"])
def test_kills_from_outside_blame_no_row(
    run: Run, tmp_path: Path, expected: tuple[bytes, list[int]], ending: str
) -> None:
    """Each run is killed at another row, the first two at one: none is rejected."""
    end = """
def end(text):
    if number < 6 and f"array {(1, 1, 3, 4, 5, 7)[number]}" in text:
        os.kill(os.getpid(), 9)
"""
    codes = codes_of_runs(end, run.folder, tmp_path, ending)
    assert codes == [-signal.SIGKILL] * 6 + [0]
    lines, rejected = found(tmp_path, ending)
    assert (lines.count(b"\n"), rejected) == (ROWS, [])
    assert set(expected[0].splitlines()) < set(lines.splitlines())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
def test_a_run_that_stops_by_itself_blames_no_row(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Interrupted four times at one row alone, or stopped by a full disk: it is scored at last."""
    model = CalibratedReranker.load(run.folder)
    encode, queries, out = model.pipeline.encoder.encode, tmp_path / "q.jsonl", tmp_path / "o.jsonl"
    write_rows(queries, ["one", "two", "three"])

    def interrupted(texts: list[str]) -> Any:
        if "two" in texts:
            raise error("stop")
        return encode(texts)

    def killed(texts: list[str]) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(model.pipeline.encoder, "encode", killed)
    if not (child := os.fork()):  # so that the rows are scored one by one
        rescore(model, queries, out)
    os.waitpid(child, 0)
    monkeypatch.setattr(model.pipeline.encoder, "encode", interrupted)
    for _ in range(4):
        with pytest.raises(error, match="stop"):
            rescore(model, queries, out)
    monkeypatch.setattr(model.pipeline.encoder, "encode", encode)
    done = rescore(model, queries, out)
    assert (done.answered, done.rejected) == (3, 0)

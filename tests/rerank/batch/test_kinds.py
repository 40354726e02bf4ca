"""Inputs of every kind are rescored alike, and a killed run of each is finished to the byte."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.batch.input import open_input
from rerank.batch.job import rescore
from rerank.errors import InputError

Run = Any  # the session's run, see conftest
ROWS = [
    {"_id": f"r{i}", "query": f"sort array {i}, please", "passages": ["Sort.", "", f"Number {i}."]}
    for i in range(170)
]
KINDS = ["q.jsonl.gz", "q.jsonl.zst", "q.tsv", "parts.jsonl", "parts.gz", "parts.csv"]
KINDS += ["parts.parquet"]
DIES = """
import os, signal, sys
from pathlib import Path
import rerank.batch.job as job
from rerank.assessment.model import CalibratedReranker

done, score = 0, job.score_chunk
def score_chunk(model, rows):
    global done
    if done == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    done += 1
    return score(model, rows)
job.score_chunk = score_chunk
job.rescore(CalibratedReranker.load(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
"""


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows as a file of this ending."""
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as out:
            writer = csv.writer(out, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writerow(["_id", "query", "passages"])
            for row in rows:
                writer.writerow([row["_id"], row["query"], json.dumps(row["passages"])])
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines(rows)))
    elif path.suffix == ".zst":
        path.write_bytes(pa.compress(lines(rows), "zstd", asbytes=True))
    else:
        path.write_bytes(lines(rows).rstrip(b"\n"))


def made(folder: Path, kind: str) -> Path:
    """The rows as an input of this kind."""
    path = folder / kind
    if not kind.startswith("parts"):
        put(path, ROWS)
        return path
    path.mkdir()
    (path / "_SUCCESS").touch()
    ending = {"parts.gz": ".json.gz"}.get(kind, path.suffix)
    for number, rows in enumerate((ROWS[:100], ROWS[100:101], ROWS[101:])):
        put(path / f"part-{number:05}{ending}", rows)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_are_the_same_wherever_reading_begins(kind: str, tmp_path: Path) -> None:
    """All rows in their order, once; from any chunk on, and one chunk by its start."""
    reader = open_input(made(tmp_path, kind))
    chunks = [(c.start, c.end, list(c.rows)) for c in reader.chunks(0)]
    every = [row for _, _, rows in chunks for row in rows]
    assert [(r.line, r.query.query_id) for r in every] == [  # type: ignore[union-attr]
        (i + 1, row["_id"]) for i, row in enumerate(ROWS)
    ]
    assert reader.total == len(ROWS)
    for i, (_, end, _) in enumerate(chunks):
        rest = [list(c.rows) for c in reader.chunks(end)]
        assert rest == [rows for _, _, rows in chunks[i + 1 :]]
    reader = open_input(tmp_path / kind, "", reader.identity)
    starts = list(reader.starts(0))
    assert starts == [start for start, _, _ in chunks]
    for number in (0, 1, len(starts) - 1, 1, 0, 2):
        assert list(reader.at(starts[number]).rows) == chunks[number][2]


def test_a_changed_part_ends_the_run(tmp_path: Path) -> None:
    """As of a single file."""
    path = made(tmp_path, "parts.gz")
    opened = open_input(path)
    opened.check()
    with (path / "part-00001.json.gz").open("ab") as out:
        out.write(b"x")
    with pytest.raises(InputError, match="was changed while it was read"):
        opened.check()


@pytest.fixture(scope="module")
def plain(run: Run, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The predictions of the rows in one plain file."""
    folder = tmp_path_factory.mktemp("plain")
    put(folder / "q.jsonl", ROWS)
    rescore(CalibratedReranker.load(run.folder), folder / "q.jsonl", folder / "out.jsonl")
    return (folder / "out.jsonl").read_bytes()


@pytest.mark.parametrize("kind", ["q.jsonl.gz", "q.tsv", "parts.gz", "parts.parquet"])
def test_a_killed_run_of_any_kind_finishes_to_the_byte(
    kind: str, run: Run, plain: bytes, tmp_path: Path
) -> None:
    """Killed before its third chunk and resumed: the predictions of the plain file, each once."""
    path, out = made(tmp_path, kind), tmp_path / "out.jsonl"
    script = [sys.executable, "-c", DIES, str(run.folder), str(path), str(out), "2"]
    died = subprocess.run(script, capture_output=True, text=True, check=False)
    assert died.returncode == -9, died.stderr
    assert not out.exists()
    model = CalibratedReranker.load(run.folder)
    done = rescore(model, path, out)
    assert done.resumed > 0
    assert (done.answered, done.rejected) == (len(ROWS), 0)
    assert out.read_bytes() == plain
    first = json.loads(out.read_text().splitlines()[0])
    assert (first["ranking"][-1]["doc_id"], first["ranking"][-1]["relevance"]) == ("1", 0)


def test_a_bad_row_of_a_csv_is_rejected_with_its_number(run: Run, tmp_path: Path) -> None:
    """The rows around it are answered."""
    path = tmp_path / "q.csv"
    path.write_text("_id,query\n1,one\n2\n3,three\n")
    done = rescore(CalibratedReranker.load(run.folder), path, tmp_path / "out.jsonl")
    assert (done.answered, done.rejected) == (2, 1)
    rejected = json.loads(done.side.read_text())
    assert (rejected["line"], rejected["reason"]) == (2, "expected 2 cells, got 1")


def test_a_bad_row_of_a_folder_is_told_with_its_part(run: Run, tmp_path: Path) -> None:
    """`line` counts through all parts; the part is named, with the line in it."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/a.jsonl").write_text('{"_id": 1, "query": "one"}\n')
    (tmp_path / "parts/b.jsonl").write_text('{"_id": 2, "query": "two"}\n{"_id": 3}\n')
    model, out = CalibratedReranker.load(run.folder), tmp_path / "out.jsonl"
    done = rescore(model, tmp_path / "parts", out)
    assert json.loads(done.side.read_text()) == {
        "line": 3,
        "part": "b.jsonl",
        "line_in_part": 2,
        "_id": "3",
        "reason": "'query' is missing; there is '_id'",
    }
    with pytest.raises(InputError, match=r"parts/b\.jsonl:2: 'query' is missing"):
        rescore(model, tmp_path / "parts", out, strict=True)

"""The files that records come in: every kind gives the same rows, another kind one sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rerank.data.beir import read_queries
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError

ROWS: list[dict[str, Any]] = [
    {"_id": "1", "query": 'a "quoted" word,\nand more', "metadata": {"group": "x"}},
    {"_id": "2", "query": "größer\tals", "metadata": {}},
    {"_id": "3", "query": "three"},
]
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
PARTS = ("part-00000-a.c000.snappy", "part-00001-b.c000.snappy")


def as_csv(path: Path, rows: list[dict[str, Any]], separator: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, delimiter=separator)
        writer.writerow(["_id", "query", "metadata"])
        for row in rows:
            metadata = json.dumps(row["metadata"]) if "metadata" in row else ""
            writer.writerow([row["_id"], row["query"], metadata])


def write(folder: Path, name: str) -> Path:
    """The rows as a file, or a folder of part files, of this name."""
    path = folder / name
    if name.startswith("parts"):
        path.mkdir()
        (path / "_SUCCESS").touch()
        (path / ".part-00000.crc").write_bytes(b"x")
        for part, rows in zip(PARTS, (ROWS[:1], ROWS[1:]), strict=True):
            if name == "parts.parquet":
                table = pa.table({"id": [int(r["_id"]) for r in rows]})
                table = table.append_column("query", pa.array([r["query"] for r in rows]))
                pq.write_table(table, path / f"{part}.parquet")
            elif name == "parts.csv":
                as_csv(path / f"{part}.csv", rows, ",")
            else:
                lines = "".join(json.dumps(row) + "\n" for row in rows)
                (path / f"{part}.json.gz").write_bytes(gzip.compress(lines.encode()))
    elif name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([{**r, "metadata": None} for r in ROWS]), path)
    elif ".csv" in name or ".tsv" in name:
        as_csv(path, ROWS, "," if ".csv" in name else "\t")
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(path.read_bytes()))
    elif name.endswith(".zst"):
        path.write_bytes(pa.compress(JSONL, "zstd", asbytes=True))
    else:
        packed = name.endswith(".gz") or name == "packed.jsonl"
        path.write_bytes(gzip.compress(JSONL) if packed else JSONL.replace(b"\n", b"\r\n"))
    return path


NAMES = ("q.jsonl", "q.ndjson", "q.jsonl.gz", "packed.jsonl", "q.jsonl.zst", "q.csv", "q.tsv")
NAMES += ("q.csv.gz", "q.parquet", "parts.parquet", "parts.csv", "parts")


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_file_gives_the_same_queries(name: str, tmp_path: Path) -> None:
    """Ids, texts and their order; of a folder in the order of its parts."""
    found = read_queries(write(tmp_path, name))
    assert [(q.query_id, q.text) for q in found] == [(r["_id"], r["query"]) for r in ROWS]
    if "parquet" not in name:
        assert [dict(q.metadata) for q in found] == [{"group": "x"}, {}, {}]


def tar(data: bytes) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        about = tarfile.TarInfo("q.jsonl")
        about.size = len(data)
        archive.addfile(about, io.BytesIO(data))
    return held.getvalue()


def utf16(text: str) -> bytes:
    return text.encode("utf-16")


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("q.jsonl", json.dumps(ROWS).encode(), "a JSON array; expected one object a line"),
        ("q.jsonl", b"\xef\xbb\xbf[\n " + JSONL, "a JSON array; expected one object a line"),
        ("q.jsonl", json.dumps(ROWS[0], indent=2).encode(), "JSON over several lines"),
        ("q.jsonl", utf16(JSONL.decode()), "UTF-16"),
        ("q.jsonl", JSONL.decode().encode("utf-16-le"), "UTF-16"),
        ("q.jsonl", JSONL.decode().encode("cp1252"), "q.jsonl:2: not UTF-8 text"),
        ("q.csv", "_id,query\n1,größer\n".encode("cp1252"), "not UTF-8 text"),
        ("q.jsonl", b"\xef\xbb\xbf_id,query\n1,x\n", "a table"),
        ("q.tsv", JSONL, "JSON; call it .jsonl"),
        ("q.csv", b"_id,query,query\n1,x,y\n", "the column 'query' appears twice"),
        ("q.jsonl", gzip.compress(tar(JSONL)), "a tar archive"),
        ("q.jsonl", b"PK\x03\x04rest", "a ZIP archive"),
        ("q.jsonl", b"PAR1rest", "a Parquet file"),
        ("q.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ("q.jsonl", b"<!DOCTYPE html><html>", "a web page"),
        ("q.parquet", JSONL, "not a readable Parquet file"),
        ("q.csv", b"_id\tquery\n1\tx\n", "separated by tabs; expected commas"),
        ("q.csv", b"_id;query\n1;x\n", "separated by semicolons; expected commas"),
        ("q.csv", b"1,x\n2,y\n", "no names of columns"),
        ("q.jsonl.gz", gzip.compress(JSONL)[:-20], "cannot be read"),
    ],
)
def test_another_kind_is_named_once(name: str, data: bytes, complaint: str, tmp_path: Path) -> None:
    """One sentence of the file, not one of each line."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as refused:
        read_queries(tmp_path / name)
    assert complaint in str(refused.value)
    assert str(refused.value).count(f"{name}:") <= 2


def test_a_folder_that_is_no_table_is_refused(tmp_path: Path) -> None:
    """An empty one, one of several kinds, and a labelled set."""
    for names, complaint in (
        ((), "no part files"),
        (("part-0.json", "part-1.csv"), "several kinds"),
        (("corpus.jsonl", "queries.jsonl"), "a labelled set"),
    ):
        folder = tmp_path / f"f{len(names)}{complaint[:3]}"
        folder.mkdir()
        for name in names:
            (folder / name).write_bytes(JSONL)
        with pytest.raises(InputError, match=complaint):
            read_queries(folder)


CORPUS = [{"_id": "d1", "title": "", "text": "one"}, {"_id": "d2", "title": "t", "text": "two"}]
QUERIES = [{"_id": "q1", "text": "x"}, {"_id": "q2", "text": "y"}]
QRELS = [
    {"query-id": "q1", "corpus-id": "d1", "score": 1},
    {"query-id": "q2", "corpus-id": "d2", "score": 2},
]


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif ".tsv" in path.name:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, r.values())) for r in rows)]
        text = "".join(line + "\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)


SHARD = "-00000-of-00001.parquet"


@pytest.mark.parametrize(
    ("corpus", "queries", "qrels"),
    [
        ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels/test.tsv"),
        ("corpus.jsonl", "queries.jsonl", "qrels/test.jsonl"),
        ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv.gz"),
        ("corpus.parquet", "queries.parquet", "qrels/test.parquet"),
        (f"corpus/corpus{SHARD}", f"queries/queries{SHARD}", f"qrels/test{SHARD}"),
        (f"corpus/train{SHARD}", f"queries/train{SHARD}", f"default/test{SHARD}"),
        (f"data/corpus{SHARD}", f"data/queries{SHARD}", f"data/test{SHARD}"),
        (f"corpus/test{SHARD}", f"queries/test{SHARD}", f"data/test{SHARD}"),
    ],
)
def test_layouts_of_the_hubs_are_the_same_set(
    corpus: str, queries: str, qrels: str, tmp_path: Path
) -> None:
    """Packed, with judgements as JSON, in Parquet shards, in `data`: one set, one digest."""
    for name, rows in ((corpus, CORPUS), (queries, QUERIES), (qrels, QRELS)):
        table(tmp_path / "set" / name, rows)
    found = LabelledSet.read(tmp_path / "set")
    assert found.qrels == {"q1": {"d1": 1.0}, "q2": {"d2": 2.0}}
    assert found.splits == {"test": ("q1", "q2")}
    assert found.corpus["d2"].full_text == "t. two"


def test_missing_titles_of_pandas_are_told_once(tmp_path: Path) -> None:
    """A column of NaN is one sentence, with the count of its lines."""
    for name, rows in (("queries.jsonl", QUERIES), ("qrels/test.jsonl", QRELS)):
        table(tmp_path / name, rows)
    bad = [{"_id": f"d{i}", "title": float("nan"), "text": "x"} for i in range(50)]
    table(tmp_path / "corpus.jsonl", bad)
    with pytest.raises(InputError) as refused:
        LabelledSet.read(tmp_path)
    told = str(refused.value)
    assert told.count("title is NaN (of pandas?); expected text or null") == 1
    assert "corpus.jsonl:1: " in told
    assert "(and 49 more lines)" in told
    assert len(told.splitlines()) == 2


def test_judgements_with_commas_are_told_once(tmp_path: Path) -> None:
    """The wrong separator is one sentence."""
    for name, rows in (("corpus.jsonl", CORPUS), ("queries.jsonl", QUERIES)):
        table(tmp_path / name, rows)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("query-id,corpus-id,score\nq1,d1,1\nq2,d2,1\n")
    with pytest.raises(InputError) as refused:
        LabelledSet.read(tmp_path)
    assert str(refused.value).count("separated by commas; expected tabs") == 1
    assert len(str(refused.value).splitlines()) == 2
    (tmp_path / "qrels/test.tsv").rename(tmp_path / "qrels/test.csv")
    assert LabelledSet.read(tmp_path).counts()["test_answerable"] == 2

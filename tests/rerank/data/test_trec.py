"""TREC runs and qrels: imported as a small table by hand says, and refused with their lines."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from command_line import call, refused
from known_lists import write_lines

from rerank.data.labelled_set import LabelledSet
from rerank.data.lists import import_trec
from rerank.errors import InputError
from rerank.types import ListKind

BM25 = "1 Q0 d1 1 9.5 tag\n1 Q0 d2 2 7 tag\n2 Q0 d3 1 4 tag\n3 Q0 d1 1 2 tag\n"
NEURAL = "1 Q0 d2 1 0.9 tag\n1 Q0 d4 2 0.8 tag\n"
QRELS = "1 0 d4 2\n1 0 d1 0\n2 0 d3 -1\n4 0 d9 1\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in (("bm25.run", BM25), ("neural.run", NEURAL), ("qrels.txt", QRELS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def runs(files: Path) -> dict[str, Path]:
    return {"bm25": files / "bm25.run", "neural": files / "neural.run"}


def test_runs_by_hand(files: Path) -> None:
    """The best of the last run first; no score where a run lacks the passage; nobody is dropped."""
    rows = list(import_trec(runs(files), files / "qrels.txt", depth=100, unjudged="unanswerable"))
    assert [row["_id"] for row in rows] == ["1", "2", "4", "3"]
    assert rows[0]["passages"] == [
        {"_id": "d2", "scores": {"bm25": 7.0, "neural": 0.9}},
        {"_id": "d4", "scores": {"bm25": None, "neural": 0.8}},
        {"_id": "d1", "scores": {"bm25": 9.5, "neural": None}},
    ]
    assert [row["relevant"] for row in rows] == [{"d4": 2.0}, {}, {"d9": 1.0}, {}]
    assert rows[2]["passages"] == []  # judged, and no run has it
    found = LabelledSet.read(write_lines(files / "lists.jsonl", rows))
    assert found.lists == ListKind(("bm25", "neural"), texts=False)
    assert found.qrels == {"1": {"d4": 2.0}, "4": {"d9": 1.0}}
    assert len(found.queries) == 4


def test_an_unjudged_query_is_no_surprise(files: Path) -> None:
    """Query 3 has no qrels: that is told, unless the caller says what it is."""
    with pytest.raises(InputError, match="judges nothing for 1 of the 4 queries, such as '3'"):
        list(import_trec(runs(files), files / "qrels.txt", depth=100))
    left = list(import_trec(runs(files), files / "qrels.txt", depth=100, unjudged="leave-out"))
    assert [row["_id"] for row in left] == ["1", "2", "4"]


def test_depth(files: Path) -> None:
    """Of each run the best: a passage of several runs keeps the scores of those that brought it."""
    one = next(import_trec(runs(files), files / "qrels.txt", depth=1, unjudged="leave-out"))
    assert {p["_id"]: p["scores"] for p in one["passages"]} == {
        "d2": {"bm25": None, "neural": 0.9},
        "d1": {"bm25": 9.5, "neural": None},
    }


def test_words_come_in(files: Path) -> None:
    """Of queries and passages; what is missing is named."""
    (files / "queries.tsv").write_text("1\tfill missing values\n2\tdraw\n3\tplot\n4\tbake\n")
    texts = [{"_id": f"d{i}", "title": "T", "text": f"text {i}"} for i in (1, 2, 3, 4)]
    corpus = write_lines(files / "corpus.jsonl", texts)
    words = {"queries": files / "queries.tsv", "corpus": corpus, "unjudged": "unanswerable"}
    rows = list(import_trec(runs(files), files / "qrels.txt", depth=100, **words))
    assert rows[0]["query"] == "fill missing values"
    assert rows[0]["passages"][0]["text"] == "text 2"
    asked = [{"_id": str(i), "text": f"question {i}"} for i in (1, 2, 3, 4)]
    unpacked = write_lines(files / "queries.jsonl", asked)
    packed = files / "queries.jsonl.gz"
    packed.write_bytes(gzip.compress(unpacked.read_bytes()))
    for queries in (unpacked, packed):
        named = {**words, "queries": queries}
        first = next(import_trec(runs(files), files / "qrels.txt", depth=100, **named))
        assert first["query"] == "question 1"
    write_lines(corpus, texts[:2])
    with pytest.raises(InputError, match="'d4' is not in --corpus"):
        list(import_trec(runs(files), files / "qrels.txt", depth=100, **words))


def test_a_list_that_could_not_be_read_again_is_refused(files: Path) -> None:
    """With its query; so is a run too many."""
    with pytest.raises(InputError, match="got 9 runs, at most 8"):
        list(import_trec({str(i): files / "bm25.run" for i in range(9)}, files / "q", depth=9))
    (files / "bm25.run").write_text("1 Q0 d1 1 1e200 tag\n")
    with pytest.raises(InputError, match=r"query '1': .*up to 1e"):
        list(import_trec(runs(files), files / "qrels.txt", depth=9, unjudged="unanswerable"))


def test_bad_lines_are_listed(files: Path) -> None:
    """All of them, with file and line number."""
    (files / "bm25.run").write_text("1 Q0 d1 1 nan tag\n1 Q0 d1\n1 Q0 d1 1 2 t\n1 Q0 d1 2 1 t\n")
    (files / "qrels.txt").write_text("1 0 d1 one\n1 0 d2 1\n1 0 d2 0\n")
    with pytest.raises(InputError) as refused:
        list(import_trec(runs(files), files / "qrels.txt", depth=100))
    told = str(refused.value)
    for place, what in (
        ("bm25.run:1", "finite number, got 'nan'"),
        ("bm25.run:2", "got 3 columns"),
        ("bm25.run:4", "has the passage 'd1' twice"),
        ("qrels.txt:1", "finite number, got 'one'"),
        ("qrels.txt:3", "has the passage 'd2' twice"),
    ):
        assert any(place in line and what in line for line in told.splitlines()), (place, told)


@pytest.mark.parametrize(("given", "stage"), [("{}", "k=60"), ("first={}", "first")])
def test_the_name_of_a_run_may_hold_an_equals_sign(
    files: Path, capsys: pytest.CaptureFixture[str], given: str, stage: str
) -> None:
    """As files of a parameter's values do; what stands before the first one is the stage's name."""
    run, out = files / "k=60.run", files / "lists.jsonl"
    run.write_text(BM25)
    arguments = ["--qrels", files / "qrels.txt", "--out", out, "--unjudged", "leave-out"]
    assert call("data", "import-trec", given.format(run), *arguments) == 0
    assert f"stages: {stage};" in capsys.readouterr().out
    again = ("data", "import-trec", given.format(run), *arguments)
    assert "lists.jsonl exists; write to another file" in refused(capsys, *again)
    into_input = [*arguments[:3], files / "qrels.txt", "--overwrite"]
    told = refused(capsys, "data", "import-trec", given.format(run), *into_input)
    assert "qrels.txt of --out is also an input; write to another file" in told


def test_a_query_may_appear_once(files: Path) -> None:
    """In JSONL as in lines of id and text: the later text would replace the first one, silently."""
    for name, twice in (
        ("q.jsonl", '{"_id": "1", "text": "one"}\n{"_id": "1", "text": "two"}\n'),
        ("q.tsv", "1\tone\n1\ttwo\n"),
    ):
        (files / name).write_text(twice)
        with pytest.raises(InputError, match=rf"{name}:2: id '1' appears twice"):
            list(import_trec(runs(files), files / "qrels.txt", depth=9, queries=files / name))


def test_unjudged_is_one_of_three(files: Path) -> None:
    """A mistyped one would count the unjudged as unanswerable."""
    with pytest.raises(InputError, match="unjudged should be one of refuse, leave-out"):
        list(import_trec(runs(files), files / "qrels.txt", depth=9, unjudged="leave_out"))

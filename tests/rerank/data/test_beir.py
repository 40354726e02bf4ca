"""Labelled sets on disk: what is read back, what is refused, and that nothing else can happen."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.data.beir import UNLABELLED, read_queries
from rerank.data.checks import has_text
from rerank.data.labelled_set import LabelledSet
from rerank.data.lines import SHOWN_PROBLEMS
from rerank.errors import InputError
from rerank.types import Passage, Query

CORPUS = [
    {"_id": "d1", "title": "fillna", "text": "Fill missing values."},
    {"_id": "d2", "title": "", "text": "Drop missing values.", "metadata": {"temperature": 80}},
]
QUERIES: list[Any] = [
    {"_id": "q1", "text": "replace gaps", "metadata": {"group": "gaps"}},
    {"_id": "q2", "text": "remove gaps"},
    {"_id": "q3", "text": "train a network"},
]
HEADER = "query-id\tcorpus-id\tscore"


def lines(rows: list[Any]) -> str:
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)


def folder_of(
    tmp_path: Path,
    *,
    corpus: str = lines(CORPUS),
    queries: str = lines(QUERIES),
    qrels: str = f"{HEADER}\nq1\td1\t1\nq2\td2\t2\n",
    split: str | None = "q1\nq2\nq3\n",
) -> Path:
    """A BEIR folder with these file contents."""
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "splits").mkdir()
    (folder / "corpus.jsonl").write_text(corpus, encoding="utf-8")
    (folder / "queries.jsonl").write_text(queries, encoding="utf-8")
    (folder / "qrels/test.tsv").write_text(qrels, encoding="utf-8")
    if split is not None:
        (folder / "splits/test.txt").write_text(split, encoding="utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        LabelledSet.read(folder)
    return str(caught.value)


def test_a_folder_is_read_as_its_files_say(tmp_path: Path) -> None:
    """Passages, queries, grades and splits are those of the files, in file order."""
    labelled = LabelledSet.read(folder_of(tmp_path))
    assert list(labelled.corpus.values()) == [
        Passage("d1", "fillna", "Fill missing values."),
        Passage("d2", "", "Drop missing values.", {"temperature": 80}),
    ]
    assert labelled.queries["q1"] == Query("replace gaps", "q1", {"group": "gaps"})
    assert labelled.qrels == {"q1": {"d1": 1.0}, "q2": {"d2": 2.0}}
    assert labelled.splits == {"test": ("q1", "q2", "q3")}
    assert labelled.name == "set"


def test_a_query_without_qrels_counts(tmp_path: Path) -> None:
    """An unanswerable query stands in its split and in the counts, with no right passage."""
    labelled = LabelledSet.read(folder_of(tmp_path))
    assert labelled.relevant("q3") == frozenset()
    assert labelled.counts() == {
        "passages": 2,
        "queries": 3,
        "test_queries": 3,
        "test_answerable": 2,
    }


def test_a_query_that_no_qrels_name_is_never_dropped_in_silence(tmp_path: Path) -> None:
    """Without split files it may be unanswerable or unjudged: the caller says which, or nothing is
    read.
    """
    folder = folder_of(tmp_path, split=None)
    said = refusal(folder)
    assert "1 queries have no qrels, such as 'q3'" in said
    assert "--unjudged unanswerable or --unjudged leave-out" in said
    left = LabelledSet.read(folder, unjudged="leave-out")
    assert left.splits == {"test": ("q1", "q2")}
    counted = LabelledSet.read(folder, unjudged="unanswerable")
    assert counted.splits == {"test": ("q1", "q2", "q3")}
    assert counted.counts()["test_answerable"] == 2
    with pytest.raises(InputError, match="unjudged should be one of"):
        LabelledSet.read(folder, unjudged="maybe")


def test_where_no_labels_are_needed_all_queries_count(tmp_path: Path) -> None:
    """Those without qrels are a split; if there are split files, these name the queries."""
    folder = folder_of(tmp_path, split=None)
    found = LabelledSet.read(folder, unjudged=UNLABELLED)
    assert found.splits == {"test": ("q1", "q2"), UNLABELLED: ("q3",)}
    (folder / "splits/test.txt").write_text("q1\nq2\n")
    assert LabelledSet.read(folder, unjudged=UNLABELLED).splits == {"test": ("q1", "q2")}
    for path in ("splits/test.txt", "qrels/test.tsv", "corpus.jsonl"):
        (folder / path).unlink()
    found = LabelledSet.read(folder, unjudged=UNLABELLED, corpus_elsewhere=True)
    assert (found.splits, found.qrels) == ({UNLABELLED: ("q1", "q2", "q3")}, {})


def test_a_passage_may_have_only_a_title(tmp_path: Path) -> None:
    """As in published sets of the format; the models read the title alone."""
    folder = folder_of(tmp_path)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d1", "title": "Salt", "text": ""}\n{"_id": "d2", "text": "b"}\n'
    )
    assert LabelledSet.read(folder).corpus["d1"].full_text == "Salt"
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": " ", "text": ""}\n')
    assert "corpus.jsonl:1: 'text' is empty" in refusal(folder)


def test_unanswerable_queries_need_one_split_to_stand_in(tmp_path: Path) -> None:
    """Of several splits the reader does not choose; qrels that name every query settle it."""
    folder = folder_of(tmp_path, qrels=f"{HEADER}\nq1\td1\t1\n", split=None)
    (folder / "qrels/train.tsv").write_text(f"{HEADER}\nq2\td2\t1\n", encoding="utf-8")
    with pytest.raises(InputError, match="there are 2 splits: list them in splits"):
        LabelledSet.read(folder, unjudged="unanswerable")
    (folder / "qrels/train.tsv").write_text(f"{HEADER}\nq2\td2\t1\nq3\td2\t0\n", encoding="utf-8")
    assert LabelledSet.read(folder).splits == {"test": ("q1",), "train": ("q2", "q3")}


def test_a_grade_of_zero_is_a_judged_miss(tmp_path: Path) -> None:
    """Grades of 0 and below make no passage right, but the query still counts."""
    qrels = f"{HEADER}\nq1\td1\t0\nq2\td2\t-1\n"
    folder = folder_of(tmp_path, qrels=qrels, split=None)
    labelled = LabelledSet.read(folder, unjudged="leave-out")
    assert labelled.qrels == {}
    assert labelled.splits["test"] == ("q1", "q2")


def test_windows_files_are_read_alike(tmp_path: Path) -> None:
    """A byte order mark, CRLF line ends and blank lines change nothing."""
    folder = folder_of(tmp_path)
    plain = LabelledSet.read(folder)
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        content = path.read_bytes().replace(b"\n", b"\r\n")
        path.write_bytes(b"\xef\xbb\xbf" + content + b"\r\n")
    assert LabelledSet.read(folder) == plain


# --- refusals ---------------------------------------------------------------------------------

BAD_LINES = [
    ("corpus", '{"_id": "d3", "text": ', "not JSON"),
    ("corpus", "[1, 2]", "expected a JSON object"),
    ("corpus", '{"_id": "d1", "text": "again"}', "appears twice"),
    ("corpus", '{"_id": "d3", "text": "a", "text": "b"}', "the key 'text' appears twice"),
    ("corpus", '{"_id": "d3", "text": "  "}', "'text' is empty"),
    ("corpus", '{"_id": "d3"}', "'text' is missing"),
    ("corpus", '{"_id": "d3", "contents": "x"}', "'text' is missing; there is '_id', 'contents'"),
    ("corpus", '{"_id": 3.5, "text": "a number"}', "'_id' should be text or a whole number"),
    ("corpus", '{"text": "no id"}', "'_id' is missing"),
    ("corpus", '{"_id": "d\\t3", "text": "tab"}', "holds a tab"),
    ("corpus", '{"_id": "d3", "text": "\\ud800"}', "lone surrogate"),
    ("corpus", '{"_id": "d3", "title": 3, "text": "title"}', "'title' should be text"),
    ("corpus", '{"_id": "d3", "text": "x", "metadata": [1]}', "'metadata' should be an object"),
    ("corpus", "[" * 100_000, "not JSON"),
    ("queries", "not json", "not JSON"),
    ("queries", '{"_id": "q1", "text": "again"}', "appears twice"),
    ("queries", '{"_id": "q4", "text": ""}', "'text' is empty"),
    ("qrels", "q1\td9\t1", "passage id 'd9' is not in corpus.jsonl"),
    ("qrels", "q9\td1\t1", "query id 'q9' is not in queries.jsonl"),
    ("qrels", "q1\td2\thigh", "grade 'high' is not a number"),
    ("qrels", "q1\td2\tnan", "grade 'nan' is not a number"),
    ("qrels", "q1\td2\tinf", "grade 'inf' is not a number"),
    ("qrels", "q1\td1\t2", "judged twice, 1 and 2"),
    ("qrels", "q1 d1 1", "expected 3 cells, got 1"),
    ("qrels", "q1\t0\td1\t1", "expected 3 cells, got 4"),
    ("split", "q9", "query id 'q9' is not in queries.jsonl"),
    ("split", "q1", "appears twice"),
]
FILES = {
    "corpus": ("corpus.jsonl", 2),
    "queries": ("queries.jsonl", 3),
    "qrels": ("qrels/test.tsv", 3),
    "split": ("splits/test.txt", 3),
}


@pytest.mark.parametrize(("where", "line", "complaint"), BAD_LINES)
def test_a_bad_line_is_refused_with_its_place(
    tmp_path: Path, where: str, line: str, complaint: str
) -> None:
    """The error names the file, the line number and what is wrong with that line."""
    folder = folder_of(tmp_path)
    name, before = FILES[where]
    with (folder / name).open("a", encoding="utf-8") as out:
        out.write(line + "\n")
    message = refusal(folder)
    assert f"{folder / name}:{before + 1}: " in message
    assert complaint in message


def test_all_bad_lines_stand_in_one_error(tmp_path: Path) -> None:
    """Bad lines of all four kinds of file are told together, each with its own line number."""
    folder = folder_of(
        tmp_path,
        corpus=lines([*CORPUS, "{", {"_id": "d3", "text": ""}]),
        queries=lines([QUERIES[0], "oops", *QUERIES[1:]]),
        qrels=f"{HEADER}\nq1\td1\t1\nq1\tnowhere\tmany\n",
        split="q1\nq2\nq3\nq7\n",
    )
    message = refusal(folder)
    assert "6 bad lines" in message
    places = re.findall(r"^  (\S+?):(\d+): ", message, re.MULTILINE)
    assert [(Path(p).name, int(n)) for p, n in places] == [
        ("corpus.jsonl", 3),
        ("corpus.jsonl", 4),
        ("queries.jsonl", 2),
        ("test.tsv", 3),
        ("test.tsv", 3),
        ("test.txt", 4),
    ]


def test_equal_lines_count_once(tmp_path: Path) -> None:
    """A passage, a query or a judgement that stands there twice, and says the same."""
    plain = LabelledSet.read(folder_of(tmp_path / "plain"))
    folder = folder_of(
        tmp_path / "doubled",
        corpus=lines([*CORPUS, CORPUS[0]]),
        queries=lines([*QUERIES, QUERIES[0]]),
    )
    doubled = LabelledSet.read(folder)
    assert doubled.reading.merged == 2
    assert (doubled.corpus, doubled.queries) == (plain.corpus, plain.queries)


def test_a_flood_of_bad_lines_is_counted(tmp_path: Path) -> None:
    """Beyond the first twenty the error says how many more bad lines there are."""
    message = refusal(folder_of(tmp_path, corpus=lines([*CORPUS, *["{"] * 50])))
    assert "50 bad lines" in message
    assert message.count("not JSON") == SHOWN_PROBLEMS
    assert f"and {50 - SHOWN_PROBLEMS} more" in message


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    """The error names the file that is not there."""
    folder = folder_of(tmp_path)
    (folder / name).unlink()
    assert refusal(folder) == f"{folder / name}: no such file"


@pytest.mark.parametrize("packed", ["corpus.jsonl.bz2", "corpus.zip", "corpus.txt"])
def test_a_file_of_another_ending_is_named(tmp_path: Path, packed: str) -> None:
    """Whoever has the file in another packing learns that it was seen."""
    folder = folder_of(tmp_path)
    (folder / "corpus.jsonl").rename(folder / packed)
    assert refusal(folder).endswith(f"no such file; there is {packed}")


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    """An empty folder lacks passages, queries and judgements."""
    names = ("corpus.jsonl", "queries.jsonl", "qrels/<split>.tsv")
    assert refusal(tmp_path) == ", ".join(f"{tmp_path / n}" for n in names) + ": no such file"


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """The error names the folder and what was expected of it."""
    message = refusal(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in message
    assert "corpus.jsonl" in message


def test_a_folder_without_splits_is_refused(tmp_path: Path) -> None:
    """Without qrels and splits there is nothing to measure on."""
    folder = folder_of(tmp_path, split=None)
    (folder / "qrels/test.tsv").unlink()
    assert "qrels/<split>.tsv" in refusal(folder)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_empty_files_are_refused(tmp_path: Path, name: str) -> None:
    """A set without a passage or without a query in a split is not a labelled set."""
    folder = folder_of(tmp_path, split=None)
    (folder / name).write_text("")
    refusal(folder)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """The line that is not UTF-8 is named."""
    folder = folder_of(tmp_path)
    file = folder / "corpus.jsonl"
    line = file.read_bytes().splitlines(keepends=True)[0]
    file.write_bytes(line + b"\n" + b'{"_id": "d9", "text": "caf\xe9"}\n')
    assert f"{file}:3: not UTF-8 text ('utf-8' codec can't decode byte 0xe9" in refusal(folder)


def test_a_query_in_two_splits_is_refused(tmp_path: Path) -> None:
    """A query on both sides of a split would be fitted on and reported on."""
    folder = folder_of(tmp_path)
    (folder / "splits/train.txt").write_text("q3\n")
    message = refusal(folder)
    assert "'q3'" in message
    assert "test" in message
    assert "train" in message


def test_a_judged_query_outside_its_split_is_refused(tmp_path: Path) -> None:
    """Qrels of a query that the split's own list leaves out are a contradiction."""
    folder = folder_of(tmp_path, split="q1\nq3\n")
    message = refusal(folder)
    assert "qrels/test.tsv:3: 'q2' is judged but not in" in message


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_an_empty_file_is_told_once(tmp_path: Path, name: str) -> None:
    """Not as a bad line of the qrels for each of its ids."""
    folder = folder_of(tmp_path)
    (folder / name).write_text("")
    message = refusal(folder)
    assert message.endswith(f"{name} is empty")
    assert "qrels" not in message


def test_qrels_of_trec_are_recognised(tmp_path: Path) -> None:
    """Four columns with spaces: the message names the command that reads them."""
    folder = folder_of(tmp_path)
    (folder / "qrels/test.tsv").write_text("q1 0 d1 1\n")
    assert "got 1 (of TREC's qrels? `rerank data import-trec`" in refusal(folder)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no query"),
        ('{"_id": "a", "text": "x"}\n\n{"_id": "b"}\n', ":3: 'query' is missing"),
    ],
)
def test_bad_query_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    """A file of queries is checked as those of a labelled set are."""
    path = tmp_path / "queries.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(complaint)):
        read_queries(path)


def test_metadata_that_is_no_text_is_refused_or_carried(tmp_path: Path) -> None:
    """What is read can also be hashed and written: a lone surrogate in metadata included."""
    row = '{"_id": "d3", "text": "x", "metadata": {"note": "\\ud800"}}'
    folder = folder_of(tmp_path, corpus=lines([*CORPUS, row]))
    try:
        labelled = LabelledSet.read(folder)
    except InputError:
        return
    labelled.digest()
    labelled.write(tmp_path / "again")


# --- any bytes --------------------------------------------------------------------------------

FRAGMENTS = st.one_of(
    st.sampled_from([b'{"_id": "d1", "text": "a"}', b'{"_id": "q1"', b"q1\td1\t1", b"q1", b"d1"]),
    st.sampled_from([b"NaN", b"1e400", b"null", b"\\ud800", b'"', b"\n", b"\t", b"\r", b"\x00"]),
    st.sampled_from([b"\xff", b"\xef\xbb\xbf"]),
)
ANY_BYTES = st.one_of(st.binary(max_size=60), st.lists(FRAGMENTS, max_size=8).map(b"".join))


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(["corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "splits/test.txt"]),
    content=ANY_BYTES,
    append=st.booleans(),
)
def test_any_bytes_load_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes, append: bool
) -> None:
    """Whatever bytes stand in a file, the reader loads the set or raises InputError."""
    folder = folder_of(tmp_path_factory.mktemp("bytes"))
    path = folder / name
    path.write_bytes(path.read_bytes() + content if append else content)
    try:
        labelled = LabelledSet.read(folder)
    except InputError:
        return
    assert labelled.corpus
    assert any(labelled.splits.values())


# --- write, then read -------------------------------------------------------------------------

TEXT = st.text(min_size=1, max_size=12).filter(has_text)
ID = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cf", "Z"), exclude_characters="\ufeff"),
    min_size=1,
    max_size=6,
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4))
METADATA = st.dictionaries(st.text(max_size=4), st.one_of(PLAIN, st.lists(PLAIN)), max_size=2)
SPLIT_NAMES = ["train", "dev", "test"]


@st.composite
def labelled_sets(draw: st.DrawFn, grades: st.SearchStrategy[float]) -> LabelledSet:
    """Any set that the layout can hold."""
    docs = draw(st.lists(ID, min_size=1, max_size=4, unique=True))
    asked = draw(st.lists(ID, min_size=1, max_size=5, unique=True))
    corpus = {d: Passage(d, draw(st.text(max_size=5)), draw(TEXT), draw(METADATA)) for d in docs}
    queries = {q: Query(draw(TEXT), q, draw(METADATA)) for q in asked}
    splits: dict[str, list[str]] = {}
    for q in asked:
        splits.setdefault(draw(st.sampled_from(SPLIT_NAMES)), []).append(q)
    qrels = {q: draw(st.dictionaries(st.sampled_from(docs), grades)) for q in asked}
    return LabelledSet(
        corpus,
        queries,
        {q: right for q, right in qrels.items() if right},
        {s: tuple(ids) for s, ids in splits.items()},
        "any",
    )


def written_and_read(labelled: LabelledSet, parent: Path) -> LabelledSet:
    folder = parent / labelled.name
    labelled.write(folder)
    return LabelledSet.read(folder)


@settings(max_examples=80, deadline=None)
@given(labelled=labelled_sets(st.integers(1, 1000).map(float)))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, labelled: LabelledSet
) -> None:
    """Writing a set and reading it gives an equal set with the same digest."""
    again = written_and_read(labelled, tmp_path_factory.mktemp("written"))
    assert again == labelled
    assert again.digest() == labelled.digest()


@pytest.mark.parametrize("grade", [0.1234567, 1234567.0, 1 / 3])
def test_every_grade_is_written_whole(tmp_path: Path, grade: float) -> None:
    """A grade is read back to the last bit, however many digits it needs."""
    labelled = LabelledSet(
        {"d": Passage("d", "", "text")},
        {"q": Query("text", "q")},
        {"q": {"d": grade}},
        {"test": ("q",)},
        "graded",
    )
    assert written_and_read(labelled, tmp_path) == labelled


def test_an_older_set_in_the_folder_does_not_shine_through(tmp_path: Path) -> None:
    """Writing into a folder that holds another set leaves none of that set's splits."""
    old = LabelledSet.read(folder_of(tmp_path))
    new = replace(old, splits={"train": old.splits["test"]})
    new.write(tmp_path / "set")
    assert LabelledSet.read(tmp_path / "set") == new


def test_the_real_set_is_written_and_read(small: LabelledSet, small_folder: Path) -> None:
    """Real documentation survives the trip through the folder."""
    again = LabelledSet.read(small_folder)
    assert again == small
    assert again.digest() == small.digest()

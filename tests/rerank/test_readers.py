"""Files that others wrote: whatever stands in them, they are read or refused with a sentence."""

from __future__ import annotations

import json
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerank.data.beir import read_corpus, read_queries
from rerank.data.feedback import read_feedback
from rerank.data.labelled_set import LabelledSet
from rerank.data.lines import SHOWN_PROBLEMS
from rerank.errors import InputError

SETTINGS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\0", "\ud800", "a" * 5000, " ", "1", "x\ty", "\ufeff"])
)
VALUES = st.recursive(
    SCALARS,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["_id", "title", "text", "metadata", "query", "right", "relevant", "group"])
ROWS = st.dictionaries(KEYS, VALUES | st.sampled_from(["1", "words", True, ["1"]]))
GOOD = st.fixed_dictionaries({"_id": st.integers(0, 4).map(str), "text": st.just("words")})
RAW = st.sampled_from(
    ["{", "[" * 3000, '{"_id": NaN}', "9" * 5000, '{"_id": "1", "_id": "2", "text": "x"}', "", "\r"]
)
LINES = st.lists(
    (GOOD | ROWS | VALUES).map(lambda row: json.dumps(row, ensure_ascii=True)) | RAW, max_size=6
)
CELLS = st.sampled_from(
    ["0", "1", "2", "9", "query-id", "corpus-id", "score", "", "-1", "1e999", "nan", "0x1", "1_0"]
)
TABLE = st.lists(st.lists(CELLS | st.text(max_size=3), max_size=4).map("\t".join), max_size=6)


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return path


@SETTINGS
@given(lines=LINES)
@pytest.mark.parametrize("read", [read_corpus, read_queries, read_feedback])
def test_lines_are_read_or_refused(tmp_path: Path, read: Any, lines: list[str]) -> None:
    """What comes back is text, whole, and there is some."""
    try:
        found = read(write(tmp_path / "x.jsonl", lines))
    except InputError:
        return
    assert found
    for one in found.values() if isinstance(found, dict) else found:
        text = one.query.text if read is read_feedback else one.text
        assert text.strip()
        text.encode()


@SETTINGS
@given(corpus=LINES, queries=LINES, qrels=TABLE, split=TABLE)
def test_labelled_sets_are_read_or_refused(
    tmp_path: Path, corpus: list[str], queries: list[str], qrels: list[str], split: list[str]
) -> None:
    """A set that is read has finite grades above 0 of passages and queries that it has."""
    folder = tmp_path / "set"
    sure = [json.dumps({"_id": str(i), "text": "words"}) for i in range(3)]
    write(folder / "corpus.jsonl", [*sure, *corpus])
    write(folder / "queries.jsonl", [*sure, *queries])
    write(folder / "qrels/test.tsv", qrels)
    write(folder / "splits/test.txt", split)
    try:
        found = LabelledSet.read(folder)
    except InputError:
        return
    assert set(found.qrels) <= set(found.queries)
    for grades in found.qrels.values():
        assert set(grades) <= set(found.corpus)
        assert all(math.isfinite(grade) and grade > 0 for grade in grades.values())
    for ids in found.splits.values():
        assert len(set(ids)) == len(ids)
        assert set(ids) <= set(found.queries)


SCORES = st.dictionaries(st.sampled_from(["a", "b"]), st.floats() | st.none() | SCALARS, max_size=2)
PASSAGE = st.fixed_dictionaries(
    {"_id": st.integers(0, 3).map(str), "scores": SCORES | st.just({"a": 1, "b": 2.5})},
    optional={"right": st.booleans() | SCALARS, "grade": SCALARS, "text": SCALARS},
)
LIST = st.fixed_dictionaries(
    {"_id": st.integers(0, 4).map(str), "query": st.just("words")},
    optional={
        "passages": st.lists(PASSAGE, max_size=3) | VALUES,
        "relevant": st.just(["1"]) | VALUES,
        "split": SCALARS,
    },
)


@SETTINGS
@given(lists=st.lists((LIST | ROWS).map(json.dumps) | RAW, max_size=4))
def test_lists_are_read_or_refused(tmp_path: Path, lists: list[str]) -> None:
    """Those that are read have the same stages, each a score of some passage, and labels."""
    try:
        found = LabelledSet.read(write(tmp_path / "x.jsonl", lists))
    except InputError:
        return
    assert found.lists
    for query in found.queries.values():
        assert query.passages is not None
        if query.passages:
            assert set(query.scores or ()) == set(found.lists.stages)
    for grades in found.qrels.values():
        assert set(grades) <= set(found.corpus)
        assert all(math.isfinite(grade) and grade > 0 for grade in grades.values())
    assert sorted(i for ids in found.splits.values() for i in ids) == sorted(found.queries)


@pytest.mark.parametrize("read", [read_corpus, read_queries, read_feedback])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, read: Any) -> None:
    """A pipe that nobody writes to, a folder, and a device without an end are refused."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero"), tmp_path / "nothing"):
        with pytest.raises(InputError, match=str(path)):
            read(path)


@pytest.mark.parametrize("read", [read_corpus, read_queries, read_feedback])
def test_many_bad_lines_are_counted_and_not_kept(tmp_path: Path, read: Any) -> None:
    """The refusal tells the first ones, cut, and how many there are, in bounded memory."""
    size, path = 60_000, tmp_path / "x.jsonl"
    path.write_text("x\n" * size + json.dumps({"_id": "a" * 10**5 + "\t"}) + "\n")
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"{size + 1} " in str(caught.value)
    assert len(str(caught.value)) < 500 * SHOWN_PROBLEMS
    assert most < 2 * path.stat().st_size + 1_600_000  # of it 1 MiB is the reader's buffer

"""Labelled lists: what is read, and each thing that is refused, in a sentence with its line."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_lists import write_lines

from rerank.data.grouping import grouped
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.types import ListKind

Row = dict[str, Any]
ROWS: list[Row] = [
    {
        "_id": "1",
        "query": "fill missing values",
        "metadata": {"group": "a"},
        "passages": [
            {"_id": "d1", "text": "Fill NA values.", "scores": {"bm25": 3, "dense": 0.5}},
            {"_id": "d2", "text": "Draw.", "scores": {"bm25": None, "dense": 0.25}, "right": True},
        ],
    },
    {
        "_id": "2",
        "query": "draw a circle",
        "split": "test",
        "passages": [{"_id": "d2", "text": "Draw.", "scores": {"dense": 0.5, "bm25": 1.5}}],
        "relevant": {"d2": 2, "d9": 1, "d8": 0},
    },
    {"_id": "3", "query": "bake bread", "passages": [], "relevant": []},
]


def read(tmp_path: Path, rows: list[Row]) -> LabelledSet:
    return LabelledSet.read(write_lines(tmp_path / "lists.jsonl", rows))


def test_what_is_read(tmp_path: Path) -> None:
    """Scores by stage, NaN where one did not bring the passage; labels of both kinds; splits."""
    found = read(tmp_path, ROWS)
    assert found.name == "lists"
    assert found.lists == ListKind(("bm25", "dense"), texts=True)
    assert found.splits == {"train": ("1", "3"), "test": ("2",)}
    assert found.qrels == {"1": {"d2": 1.0}, "2": {"d2": 2.0, "d9": 1.0}}
    assert set(found.corpus) == {"d1", "d2", "d9"}  # d9 is right, and no list has it
    one, two, three = (found.queries[i] for i in "123")
    assert [q.mode for q in (one, two)] == ["lists", "lists"]
    assert one.scores is not None
    assert two.scores is not None
    assert one.scores["bm25"][0] == 3
    assert math.isnan(one.scores["bm25"][1])
    assert one.scores_of(1) == {"bm25": None, "dense": 0.25}
    assert two.scores_of(0) == {"dense": 0.5, "bm25": 1.5}
    assert three.passages == ()


def test_the_order_of_the_lines_changes_no_group(tmp_path: Path) -> None:
    """A passage that is right for one list has the title that a later list gives it."""
    named: Row = {**ROWS[1], "_id": "1", "query": "draw", "relevant": ["d9"]}
    titled = {"_id": "d9", "title": "Doc A", "text": "Arc.", "scores": {"dense": 1, "bm25": 1}}
    lists = [named, {**ROWS[1], "_id": "2", "passages": [titled], "relevant": ["d9"]}]
    first, second = (grouped(read(tmp_path, rows), ("1", "2")) for rows in (lists, lists[::-1]))
    for found in (first, second):
        assert found.corpus["d9"].title == "Doc A"
        assert found.group("1") == found.group("2")


def test_the_digest_sees_the_scores(tmp_path: Path) -> None:
    """Another score makes another set: a model of it is made anew."""
    other = copy.deepcopy(ROWS)
    other[0]["passages"][0]["scores"]["bm25"] = 4
    assert read(tmp_path, ROWS).digest() == read(tmp_path, ROWS).digest()
    assert read(tmp_path, ROWS).digest() != read(tmp_path, other).digest()


def test_a_folder_has_no_place_for_scores(tmp_path: Path) -> None:
    """So they are not left out silently."""
    with pytest.raises(InputError, match="lists with scores cannot be written as a BEIR folder"):
        read(tmp_path, ROWS).write(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_without_a_text_the_words_tell_nothing(tmp_path: Path) -> None:
    """One passage without a text is enough: features must be there for every list."""
    rows = copy.deepcopy(ROWS)
    del rows[0]["passages"][0]["text"]
    assert read(tmp_path, rows).lists == ListKind(("bm25", "dense"), texts=False)


def change(row: int, passage: int | None = None, **values: Any) -> Callable[[list[Row]], None]:
    """Set fields of a row, or of one of its passages."""

    def apply(rows: list[Row]) -> None:
        place = rows[row] if passage is None else rows[row]["passages"][passage]
        place.update(values)
        for key in [key for key, value in values.items() if value is ...]:
            del place[key]

    return apply


@pytest.mark.parametrize(
    ("wrong", "line", "sentence"),
    [
        (change(1, _id="1"), 2, "id '1' appears twice"),
        (change(0, 1, _id="d1"), 1, "holds the id 'd1' twice"),
        (change(0, 1, _id=...), 1, r"passages\[1\] has no '_id'"),
        (change(0, 1, _id=None), 1, r"passages\[1\] has no '_id'"),
        (change(0, 1, right=...), 1, "got neither"),
        (change(0, relevant=["d1"]), 1, "got both"),
        (change(0, 1, right=False), 1, "some of its passages have no label"),
        (change(0, 1, right="yes"), 1, "'right' should be true or false, got 'yes'"),
        (change(0, 1, right=..., grade=-1), 1, "0 or more, got -1"),
        (change(0, 1, grade=0), 1, "'d2' has 'right' true and 'grade' 0, which contradict"),
        (change(0, 1, right=False, grade=2), 1, "'right' false and 'grade' 2, which contradict"),
        (change(1, split="tset"), 2, "train, dev, test, got 'tset'; did you mean 'test'"),
        (change(0, 1, scores={"bm25": 1.0}), 1, r"passages\[1\] has the scores of \['bm25'\]"),
        (change(0, 1, scores={"bm25": None, "dense": None}), 1, "all null"),
        (change(0, 1, scores={"bm25": math.nan, "dense": 1}), 1, "'bm25' is not a finite number"),
        (change(0, 1, scores={"bm25": "3", "dense": 1}), 1, "'bm25' should be a number, got"),
        (change(0, 1, scores={}), 1, "'scores' should be an object"),
        (change(0, 1, scores=...), 1, r"passages\[1\] has the scores of \[\]"),
        (change(0, 1, logit=1.0), 1, "both 'scores' and a logit"),
        (change(1, 0, scores={"dense": 1}), 2, "those of the first list have"),
        (change(1, 0, scores=...), 2, "have no 'scores'"),
        (change(1, passages=...), 2, "'passages' is missing"),
        (change(2, relevant=...), 3, "got neither"),
        (change(1, relevant="d2"), 2, "'relevant' should be a list of ids"),
        (change(1, query=...), 2, "'query' is missing"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, wrong: Callable[[list[Row]], None], line: int, sentence: str
) -> None:
    """Each mistake, with the number of its line."""
    rows = copy.deepcopy(ROWS)
    wrong(rows)
    with pytest.raises(InputError, match=sentence) as refused:
        read(tmp_path, rows)
    assert f"lists.jsonl:{line}: " in str(refused.value)


def test_nothing_to_calibrate(tmp_path: Path) -> None:
    """Lists none of which has a passage name no stage."""
    with pytest.raises(InputError, match="no list with a passage"):
        read(tmp_path, ROWS[2:])


def test_a_query_is_left_out_of_its_own_list(tmp_path: Path) -> None:
    """The passage of its id and its words goes, with its scores, unless it is judged right."""
    own = {"_id": "q", "text": "bake the bread", "scores": {"bm25": 9.0}}
    other = {"_id": "d", "text": "Bread is baked.", "scores": {"bm25": 2.0}}
    row = {"_id": "q", "query": "Bake the bread", "passages": [own, other], "relevant": ["d"]}
    found = read(tmp_path, [row])
    query = found.queries["q"]
    assert [p.doc_id for p in query.passages or ()] == ["d"]
    assert query.scores_of(0) == {"bm25": 2.0}
    assert found.reading.own_passages == 1
    for kept in ({"relevant": ["q"]}, {"query": "how is bread baked"}):
        query = read(tmp_path, [row | kept]).queries["q"]
        assert [p.doc_id for p in query.passages or ()] == ["q", "d"]

"""Training pairs: what a line means, equal passages and questions, and lines that are refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rerank.data.labelled_set import LabelledSet
from rerank.data.records import LONGEST_PASSAGE
from rerank.errors import InputError


def passage(text: str, title: str = "") -> dict[str, str]:
    return {"title": title, "text": text}


def write(folder: Path, rows: list[Any], *, packed: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if packed:
        (folder / "pairs.jsonl.gz").write_bytes(gzip.compress(content))
    else:
        (folder / "pairs.jsonl").write_bytes(content)
    return folder


ROWS = [
    {
        "query": "does it float",
        "positives": [passage("It floats.", "Boat")],
        "hard_negatives": [passage("It is red.", "Boat")],
        "group": "boat",
        "source": "made",
    },
    {
        "query": "does it fly",
        "positives": [],
        "hard_negatives": [passage("It is red.", "Boat"), passage("It floats.", "Boat")],
        "group": "boat",
    },
]


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_is_a_query_with_its_judgements(tmp_path: Path, packed: bool) -> None:
    """Right and wrong passages, the group, and what an unanswerable query was asked about."""
    labelled = LabelledSet.read(write(tmp_path / "made", ROWS, packed=packed))
    assert labelled.name == "made"
    assert {d: (p.title, p.text) for d, p in labelled.corpus.items()} == {
        "p1": ("Boat", "It floats."),
        "p2": ("Boat", "It is red."),
    }
    assert labelled.splits == {"train": ("q1", "q2")}
    assert labelled.relevant("q1") == {"p1"}
    assert labelled.queries["q1"].metadata == {"group": "boat", "judged_wrong": ["p2"]}
    assert labelled.relevant("q2") == frozenset()
    assert labelled.queries["q2"].metadata["judged_wrong"] == ["p2", "p1"]
    assert labelled.queries["q2"].metadata["asked_about"] == "p2"
    assert labelled.group("q1") == labelled.group("q2") == "group:boat"


def test_the_same_question_in_the_same_group_is_asked_once(tmp_path: Path) -> None:
    """Its answers are joined, and none of them is wrong; in another group it is another one."""
    again = ROWS[0] | {
        "query": "Does it  float",
        "positives": [passage("It is red.", "Boat")],
        "hard_negatives": [passage("It floats.", "Boat")],
    }
    other = ROWS[0] | {"group": "plane"}
    labelled = LabelledSet.read(write(tmp_path / "made", [ROWS[0], again, other]))
    assert list(labelled.queries) == ["q1", "q2"]
    assert labelled.relevant("q1") == {"p1", "p2"}
    assert "judged_wrong" not in labelled.queries["q1"].metadata
    assert labelled.group("q1") != labelled.group("q2")


def test_a_folder_of_either_kind_is_read(small: LabelledSet, tmp_path: Path) -> None:
    """Pairs where there are pairs, else the BEIR layout."""
    small.write(tmp_path / "small")
    assert LabelledSet.read(tmp_path / "small").digest() == small.digest()
    assert len(LabelledSet.read(write(tmp_path / "made", ROWS)).queries) == 2


def test_a_passage_is_read_as_everywhere(tmp_path: Path) -> None:
    """Its title may be null, and its text has a limit."""
    titled = {"query": "q", "positives": [{"title": None, "text": "It floats."}]}
    (found,) = LabelledSet.read(write(tmp_path / "made", [titled])).corpus.values()
    assert (found.title, found.text) == ("", "It floats.")
    long = {"query": "q", "positives": [passage("x" * (LONGEST_PASSAGE + 1))]}
    with pytest.raises(InputError, match=f"'text' has {LONGEST_PASSAGE + 1} characters"):
        LabelledSet.read(write(tmp_path / "long", [long]))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (["no", "object"], r"pairs\.jsonl:2: expected a JSON object"),
        ({"positives": [passage("text")]}, "pairs.jsonl:2: .*query"),
        ({"query": "q", "positives": [{"title": ""}]}, "pairs.jsonl:2: .*text"),
        ({"query": "q", "positives": "text"}, "'positives' should be a list of passages"),
        ({"query": "q", "positives": []}, "neither a positive nor a hard negative"),
        ({"query": " ", "positives": [passage("text")]}, "pairs.jsonl:2: .*query"),
    ],
)
def test_a_line_that_is_no_pair_is_refused(tmp_path: Path, row: Any, sentence: str) -> None:
    """The error names the file and the line."""
    with pytest.raises(InputError, match=sentence):
        LabelledSet.read(write(tmp_path / "made", [ROWS[0], row]))


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    """Some editors write one."""
    line = json.dumps({"query": "q", "positives": [{"text": "t"}]})
    (tmp_path / "pairs.jsonl").write_text(line, encoding="utf-8-sig")
    assert len(LabelledSet.read(tmp_path).queries) == 1


def test_files_that_hold_no_pairs_are_refused(tmp_path: Path) -> None:
    """An empty file, a folder without one, bytes that are no gzip, and a line that is not JSON."""
    with pytest.raises(InputError, match="file of pairs is empty"):
        LabelledSet.read(write(tmp_path / "empty", []))
    with pytest.raises(InputError, match=r"corpus\.jsonl"):
        LabelledSet.read(tmp_path)
    torn = write(tmp_path / "torn", ROWS, packed=True) / "pairs.jsonl.gz"
    torn.write_bytes(torn.read_bytes()[:-12])
    with pytest.raises(InputError, match="cannot be read"):
        LabelledSet.read(tmp_path / "torn")
    broken = write(tmp_path / "broken", ROWS, packed=True) / "pairs.jsonl.gz"
    broken.write_bytes(broken.read_bytes()[:10] + b"\xff" * 20)  # the header of gzip, then noise
    with pytest.raises(InputError, match="cannot be read"):
        LabelledSet.read(tmp_path / "broken")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/pairs.jsonl").write_text('{"query": \n')
    with pytest.raises(InputError, match=r"pairs\.jsonl:1: not JSON"):
        LabelledSet.read(tmp_path / "made")

"""Public sets as they are: bad lines are refused or left out, equal judgements are merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rerank.data.beir import read_corpus
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError

HEADER = "query-id\tcorpus-id\tscore\n"


def made(
    folder: Path,
    *,
    corpus: tuple[str, ...] = (),
    queries: tuple[str, ...] = (),
    qrels: tuple[str, ...] = (),
) -> Path:
    """Three passages and three queries, each with its own right passage, and these lines more."""
    (folder / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": f"d{i}", "text": f"Passage number {i}."}) for i in range(3)]
    asked = [json.dumps({"_id": f"q{i}", "text": f"what is number {i}"}) for i in range(3)]
    judged = [f"q{i}\td{i}\t1" for i in range(3)]
    for name, lines in (
        ("corpus.jsonl", [*rows, *corpus]),
        ("queries.jsonl", [*asked, *queries]),
        ("qrels/test.tsv", [HEADER.strip(), *judged, *qrels]),
    ):
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return folder


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"corpus": ('{"_id": "d9", "text": ""}',)}, "passages", "corpus.jsonl:4"),
    ({"corpus": ('{"_id": "d9", "text": "\\u200b"}',)}, "passages", "corpus.jsonl:4"),
    ({"corpus": ('{"_id": "d0", "text": "other"}',)}, "passages", "corpus.jsonl:4"),
    ({"corpus": ("{",)}, "lines", "corpus.jsonl:4"),
    ({"queries": ('{"_id": "q9", "text": " "}',)}, "queries", "queries.jsonl:4"),
    ({"queries": ('{"_id": "a\\tb", "text": "x"}',)}, "queries", "queries.jsonl:4"),
    ({"qrels": ("q0\tnowhere\t1",)}, "judgements", "test.tsv:5"),
    ({"qrels": ("nobody\td0\t1",)}, "judgements", "test.tsv:5"),
    ({"qrels": ("q0\td1\tmaybe",)}, "judgements", "test.tsv:5"),
    ({"qrels": ("q0\td1",)}, "judgements", "test.tsv:5"),
]


@pytest.mark.parametrize(("more", "what", "place"), BAD)
def test_a_bad_line_is_refused_or_left_out(
    more: dict[str, Any], what: str, place: str, tmp_path: Path
) -> None:
    """By default it is named, with the option; else it is counted and listed, the rest is read."""
    folder = made(tmp_path / "set", **more)
    with pytest.raises(InputError) as refused:
        LabelledSet.read(folder)
    assert f"{place}: " in str(refused.value)
    assert "--on-bad-lines skip" in str(refused.value)
    found = LabelledSet.read(folder, on_bad_lines="skip")
    assert found.reading.left_out == {what: 1}
    assert place in found.reading.listed
    assert found.qrels == {f"q{i}": {f"d{i}": 1.0} for i in range(3)}
    assert found.corpus["d0"].text == "Passage number 0."
    assert found.described()["reading"] == {"on_bad_lines": "skip", "left_out": {what: 1}}
    with pytest.raises(InputError, match="on_bad_lines should be one of"):
        LabelledSet.read(folder, on_bad_lines="ignore")


def test_a_query_that_lost_its_right_passage_is_no_query(tmp_path: Path) -> None:
    """Nobody knows whether another passage answers it: it counts neither way."""
    lines = ('{"_id": "q3", "text": "x"}', '{"_id": "q4", "text": "y"}')
    qrels = ("q3\tgone\t1", "q3\td1\t0", "q4\tgone\t0", "q0\tgone\t1")
    folder = made(tmp_path / "set", queries=lines, qrels=qrels)
    found = LabelledSet.read(folder, on_bad_lines="skip")
    assert list(found.queries) == ["q0", "q1", "q2", "q4"]
    assert found.splits == {"test": ("q0", "q1", "q2", "q4")}
    assert found.relevant("q0") == {"d0"}
    assert found.relevant("q4") == frozenset()
    assert found.reading.left_out["queries without their right passage"] == 1
    assert found.reading.left_out["judgements"] == 3


def test_equal_judgements_are_merged_and_contradicting_ones_refused(tmp_path: Path) -> None:
    """A line that is there twice says nothing new; two grades cannot both be right."""
    found = LabelledSet.read(made(tmp_path / "a", qrels=("q0\td0\t1", "q1\td1\t1.0")))
    assert found.reading.merged == 2
    assert found.counts()["test_answerable"] == 3
    contradicting = made(tmp_path / "b", qrels=("q0\td0\t0",))
    for policy in ("refuse", "skip"):
        with pytest.raises(InputError, match=r"test.tsv:5: .* judged twice, 1 and 0"):
            LabelledSet.read(contradicting, on_bad_lines=policy)


def test_a_query_does_not_find_itself(tmp_path: Path) -> None:
    """A passage with the id and nearly the words of the query is left out of its candidates."""
    own = (
        '{"_id": "q0", "title": "", "text": "What is  number 0"}',
        '{"_id": "q1", "title": "number", "text": "what is number 1"}',
        '{"_id": "q2", "text": "Something else, whose id is the same by chance."}',
    )
    found = LabelledSet.read(made(tmp_path / "set", corpus=own))
    assert found.reading.own_passages == 2
    assert [sorted(q.without) for q in found.queries.values()] == [["q0"], ["q1"], []]
    judged = LabelledSet.read(made(tmp_path / "b", corpus=own, qrels=("q0\tq0\t1",)))
    assert judged.queries["q0"].without == frozenset(), "a passage that is judged right counts"


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_where_nothing_is_left_the_error_lists_what_was_left_out(name: str, tmp_path: Path) -> None:
    """A file of bad lines only is not called empty without a word of them."""
    folder = made(tmp_path / "set")
    row = {"qrels/test.tsv": "q0\tnowhere\t1\n"}.get(name, '{"_id": "x", "text": " "}\n')
    (folder / name).write_text(row)
    with pytest.raises(InputError) as refused:
        LabelledSet.read(folder, on_bad_lines="skip", unjudged="leave-out")
    assert "left out (--on-bad-lines skip): 1 " in str(refused.value)
    assert f"{name}:1: " in str(refused.value)


def test_a_corpus_without_its_bad_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning counts and lists them; the error of a corpus alone names no option it lacks."""
    folder = made(tmp_path / "set", corpus=('{"_id": "d9", "text": ""}',))
    assert list(read_corpus(folder, "skip")) == ["d0", "d1", "d2"]
    assert "1 passages" in caplog.text
    assert "corpus.jsonl:4: " in caplog.text
    for policy, named in (("refuse", True), ("", False)):
        with pytest.raises(InputError, match=r"corpus\.jsonl:4: ") as refused:
            read_corpus(folder, policy)
        assert ("--on-bad-lines" in str(refused.value)) == named

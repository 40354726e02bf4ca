"""`rerank train cross-encoder`: what it refuses before any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import refused

from rerank.commands.options import Reading
from rerank.data.labelled_set import LabelledSet
from rerank.training.commands import Training


@pytest.mark.parametrize("limit", ["many", "-3", "1.5"])
def test_a_limit_that_is_no_number_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    """`FOLDER:LIMIT` takes a count of queries."""
    given = f"{small_folder}:{limit}"
    assert given in refused(capsys, "train", "cross-encoder", given, "--out", tmp_path / "out")


def test_finetuning_on_an_unknown_split_is_refused(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the splits that there are."""
    given = ("train", "cross-encoder", few, "--out", tmp_path / "out", "--split", "tset")
    message = refused(capsys, *given)
    assert "'tset'" in message
    assert "'test'" in message


def test_an_unknown_split_is_refused_before_the_work(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt split does not cost the indexing of a corpus."""
    refused(capsys, "train", "cross-encoder", few, "--out", tmp_path / "out", "--split", "tset")
    assert not (tmp_path / "out").exists()


def test_what_is_left_out_is_grouped_as_the_sets_are(small: LabelledSet, tmp_path: Path) -> None:
    """With `--group-by`, all of an article goes if one of its questions is measured on."""
    ids = small.splits["train"]
    whole = replace(
        small,
        queries={
            i: replace(q, metadata={"article": "a" if i in ids[:10] else i})
            for i, q in small.queries.items()
        },
        name="small",
    )
    part = replace(
        whole,
        queries={ids[0]: whole.queries[ids[0]]},
        qrels={i: small.qrels[i] for i in ids[:1] if i in small.qrels},
        splits={"train": ids[:1]},
    )
    whole.write(tmp_path / "all" / "small")
    part.write(tmp_path / "held" / "small")
    training = Training(
        (str(tmp_path / "all" / "small"),),
        Reading(group_by="article"),
        out=tmp_path / "out",
        leave_out=(tmp_path / "held" / "small",),
    )
    (trained_on,) = training.sets("minilm")
    assert set(ids[:10]).isdisjoint(trained_on.labelled.splits["train"])
    assert trained_on.labelled.splits["train"]

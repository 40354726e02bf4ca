"""Queries to label next: what is written, what is refused, and what the weights then say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import feedback_from, read_feedback
from rerank.data.labelled_set import LabelledSet
from rerank.data.weights import weights_of
from rerank.errors import FolderError, InputError
from rerank.evaluation.measure import OURS
from rerank.jobs.evaluate import evaluate, weighted_note
from rerank.jobs.label_next import label_next
from rerank.types import Passage, Query

Run = Any  # the session's run, see conftest


def test_a_line_is_a_query_to_label_and_then_a_label(
    run: Run, small: LabelledSet, tmp_path: Path
) -> None:
    """As many as asked for, none that was fitted on, weights that add up to all of the others."""
    model = CalibratedReranker.load(run.folder)
    queries = [small.queries[i] for ids in small.splits.values() for i in ids]
    out = tmp_path / "next.jsonl"
    assert label_next(model, queries, 12, out) == 12
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    fresh = set(small.splits["test"])
    assert {row["_id"] for row in rows} <= fresh
    assert sum(row["metadata"]["weight"] for row in rows) == pytest.approx(len(fresh))
    for row in rows[:2]:
        answer = model.search(row["text"])
        assert answer.top is not None
        assert (row["top"]["doc_id"], row["confidence"]) == (answer.top.doc_id, answer.confidence)
    out.write_text("".join(json.dumps({**row, "right": True}) + "\n" for row in rows))
    assert [f.right for f in read_feedback(out)] == [True] * 12
    with pytest.raises(FolderError, match="labels in it would be lost"):
        label_next(model, queries, 12, out)
    assert [f.right for f in read_feedback(out)] == [True] * 12
    assert label_next(model, queries, 9, out, overwrite=True) == 9
    other = tmp_path / "other.jsonl"
    with pytest.raises(InputError, match="should be 0 or more, got -1"):
        label_next(model, queries, 12, other, seed=-1)
    with pytest.raises(InputError, match="at least 99 queries"):
        label_next(model, queries, 99, other)
    assert not other.exists()


def test_weights_are_those_of_all_queries_or_of_none() -> None:
    """A query without one would count as nobody knows what."""
    one, other = Query("a", "1", {"weight": 2}), Query("b", "2")
    assert weights_of([other]) == {}
    assert weights_of([one]) == {"1": 2.0}
    numbers = [replace(one, query_id="2", metadata={"weight": w}) for w in (0, float("inf"), True)]
    for bad in (other, *numbers):
        with pytest.raises(InputError, match="query '2': metadata 'weight' should be a number"):
            weights_of([one, bad])


def test_the_weights_say_what_all_queries_would(run: Run, small: LabelledSet) -> None:
    """Right ones that stand for three, wrong ones for one."""
    measured = evaluate(CalibratedReranker.load(run.folder), small, "test", work=run.work)
    n = len(measured.right)
    sure = replace(
        measured,
        confidences={**measured.confidences, OURS: np.full(n, 0.9)},
        right=np.arange(n) % 2,
    )
    weights = {i: 3.0 if k % 2 else 1.0 for k, i in enumerate(sure.query_ids)}
    assert "and 75." in weighted_note(sure, weights) or "and 74." in weighted_note(sure, weights)
    never = replace(measured, confidences={**measured.confidences, OURS: np.zeros(n)})
    assert "none of the" in weighted_note(never, weights)
    few = replace(measured, confidences={OURS: np.where(np.arange(n) < 3, 0.9, 0.0)})
    different = {i: k + 1.0 for k, i in enumerate(sure.query_ids)}
    assert "of these are right (too few for an interval)" in weighted_note(few, different)


def test_passages_that_a_query_brought_stay_in_its_line(run: Run, tmp_path: Path) -> None:
    """So that the label is about this list and not about a search."""
    lists = [Query(f"sort {i}", str(i), passages=(Passage("p", "", "text"),)) for i in range(3)]
    out = tmp_path / "next.jsonl"
    label_next(CalibratedReranker.load(run.folder), lists, 2, out)
    rows = [json.loads(line) | {"right": True} for line in out.read_text().splitlines()]
    assert all(feedback_from(row).query.mode == "rerank" for row in rows)

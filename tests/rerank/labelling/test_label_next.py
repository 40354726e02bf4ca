"""Queries to label next: what is written, what is refused, and what the weights then say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.metrics.intervals import Estimate
from rerank.assessment.model import CalibratedReranker
from rerank.data.feedback import feedback_from, read_feedback
from rerank.data.labelled_set import LabelledSet
from rerank.data.labels import drawn_at_random, weights_of
from rerank.errors import FolderError, InputError
from rerank.evaluation.measure import weighted_accuracy
from rerank.jobs.evaluate import evaluate
from rerank.jobs.recalibrate import recalibrate
from rerank.labelling.labels import label_next
from rerank.report.headline import after_evaluation, headline
from rerank.types import Passage, Query

Run = Any  # the session's run, see conftest


def test_a_line_is_a_query_to_label_and_then_a_label(
    small: LabelledSet, tmp_path: Path, opened: CalibratedReranker
) -> None:
    """As many as asked for, none that was fitted on, weights that add up to all of the others."""
    queries = [small.queries[i] for ids in small.splits.values() for i in ids]
    out = tmp_path / "next.jsonl"
    assert label_next(opened, queries, 12, out) == 12
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    fresh = set(small.splits["test"])
    assert {row["_id"] for row in rows} <= fresh
    assert sum(row["metadata"]["weight"] for row in rows) == pytest.approx(len(fresh))
    assert {row["metadata"]["drawn_by"] for row in rows} == {opened.version}
    for row in rows[:2]:
        answer = opened.search(row["text"])
        assert answer.top is not None
        assert (row["top"]["doc_id"], row["confidence"]) == (answer.top.doc_id, answer.confidence)
    out.write_text("".join(json.dumps({**row, "right": True}) + "\n" for row in rows))
    assert [f.right for f in read_feedback(out)] == [True] * 12
    with pytest.raises(FolderError, match="labels in it would be lost"):
        label_next(opened, queries, 12, out)
    assert [f.right for f in read_feedback(out)] == [True] * 12
    assert label_next(opened, queries, 9, out, overwrite=True) == 9
    other = tmp_path / "other.jsonl"
    with pytest.raises(InputError, match="at least 99 different queries"):
        label_next(opened, queries, 99, other)
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


def test_the_weights_say_what_all_queries_would(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """In the headline, and in what to do next; the table is of the measured queries."""
    ids = small.splits["test"]
    drawn = {"weight": 2.0, "drawn_by": opened.version}
    heavy = {i: replace(small.queries[i], metadata=drawn) for i in ids}
    weighted = replace(small, queries={**small.queries, **heavy})
    measured = evaluate(opened, weighted, "test", work=run.work)
    assert any("no random sample" in note for note in measured.notes)
    assert measured.weighted is not None
    assert measured.weighted.queries == 2 * len(ids)
    assert measured.weighted.sentence in headline(measured, opened.maps["search"])[0]
    poor = replace(measured.weighted, right=Estimate(0.1, 0.05, 0.2))
    assert after_evaluation(replace(measured, weighted=poor)).startswith("rerank recalibrate")
    good = replace(measured.weighted, right=Estimate(0.9, 0.8, 0.95))
    assert after_evaluation(replace(measured, weighted=good)).startswith("rerank rescore")


def test_a_sample_of_another_model_has_no_interval(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """This model may accept queries of a part of which nothing was drawn."""
    ids = small.splits["test"]
    for drawn_by, has_interval in ((opened.version, True), ("another", False), (None, False)):
        metadata = {"weight": 2.0} | ({"drawn_by": drawn_by} if drawn_by else {})
        drawn = {i: replace(small.queries[i], metadata=metadata) for i in ids}
        sample = replace(small, queries={**small.queries, **drawn})
        weighted = evaluate(opened, sample, "test", work=run.work).weighted
        assert weighted is not None
        assert weighted.right is not None
        assert np.isfinite(weighted.right.low) == has_interval
        assert ("not known to have drawn" in weighted.sentence) == (not has_interval)


def test_right_ones_that_stand_for_three() -> None:
    """And wrong ones for one: three quarters of all are right."""
    right, sure = np.arange(60) % 2, np.full(60, 0.9)
    groups = [str(i) for i in range(60)]
    weights = np.where(right, 3.0, 1.0)
    found = weighted_accuracy(sure, right, weights, groups, 0.7)
    assert (found.queries, found.accepted) == (120, 120)
    assert found.right is not None
    assert found.right.mean == 0.75
    assert "about 120 are accepted (100%), and 75.0% of these are right (between" in found.sentence
    never = weighted_accuracy(np.zeros(60), right, weights, groups, 0.7)
    assert "none of the 120 queries" in never.sentence
    few = weighted_accuracy(sure[:3], right[:3], np.arange(3) + 1.0, groups[:3], 0.7)
    assert "of these are right (too few for an interval)" in few.sentence


def test_a_question_asked_many_times_is_drawn_once(
    tmp_path: Path, opened: CalibratedReranker
) -> None:
    """In a log of requests a few questions are asked again and again."""
    model, out = opened, tmp_path / "next.jsonl"
    asked = [Query("Sort an array" if i % 2 else f"sort array {i}", str(i)) for i in range(12)]
    assert label_next(model, asked, 7, out) == 7
    texts = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert len(set(texts)) == 7
    with pytest.raises(InputError, match=r"at least 8 different queries .* got 7"):
        label_next(model, asked, 8, out, overwrite=True)


def test_passages_that_a_query_brought_stay_in_its_line(
    tmp_path: Path, opened: CalibratedReranker
) -> None:
    """So that the label is about this list and not about a search."""
    lists = [Query(f"sort {i}", str(i), passages=(Passage("p", "", "text"),)) for i in range(3)]
    out = tmp_path / "next.jsonl"
    label_next(opened, lists, 2, out)
    rows = [json.loads(line) | {"right": True} for line in out.read_text().splitlines()]
    assert all(feedback_from(row).query.mode == "rerank" for row in rows)


def test_a_sample_of_the_accepted_certifies_the_frozen_model(
    small: LabelledSet, tmp_path: Path, opened: CalibratedReranker
) -> None:
    """It holds only accepted questions, leaves the confidence as it is to the bit, and certifies
    from the threshold up by the exact binomial test; another model refuses it, and so does what
    needs a sample of all questions.
    """
    queries = [small.queries[i] for i in small.splits["test"]]
    out, moved = tmp_path / "accepted.jsonl", tmp_path / "moved"
    count = label_next(opened, queries, len(queries), out, how="accepted")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    accepted = [q for q, a in zip(queries, opened.assess(queries), strict=True) if a.accepted]
    assert sorted(row["_id"] for row in rows) == sorted(q.query_id for q in accepted)
    assert count == len(accepted) >= 10
    assert {row["metadata"]["population"] for row in rows} == {count}
    out.write_text("".join(json.dumps({**row, "right": True}) + "\n" for row in rows))
    assert not drawn_at_random([label.query for label in read_feedback(out)])
    recalibrate(opened, out, moved)
    certificate = CalibratedReranker.load(moved).maps["search"].certificate
    assert (certificate.queries, certificate.right) == (count, count)
    assert certificate.threshold == 0.7
    before, after = (
        m.search("how are scores calibrated") for m in (opened, CalibratedReranker.load(moved))
    )
    assert before.confidence == after.confidence
    with pytest.raises(InputError, match="drawn of what the model"):
        recalibrate(CalibratedReranker.load(moved), out, tmp_path / "again")

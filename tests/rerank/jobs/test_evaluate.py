"""Measuring a saved model on a split: the figures of its own run, and what flatters them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rerank.assessment.model import CalibratedReranker
from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.evaluate import evaluate

Run = Any  # the session's run, see conftest


def test_evaluating_again_gives_what_the_run_measured(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """A loaded model measured on the reported split shows the numbers of its own report."""
    seen = evaluate(opened, small, "test", work=run.work)
    assert seen.notes == ()
    kept = json.loads((run.folder / "reliability.json").read_text())
    ours = dict(seen.table.rows)["calibrated"].to_dict()
    expected = kept["confidence"]["calibrated"]
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, abs=1e-12), name
    assert seen.orders == kept["orders"]
    assert seen.events.keys() == kept["events"].keys()
    for name, values in kept["events"].items():
        assert seen.events[name] == pytest.approx(values, abs=1e-12)


def test_examples_are_the_first_of_each_kind(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """Accepted and right; doubted and wrong; refused, with nothing to find. By id, where there."""
    seen = evaluate(opened, small, "test", work=run.work)
    confidence = dict(zip(seen.query_ids, seen.confidences["calibrated"], strict=True))
    right = dict(zip(seen.query_ids, seen.right, strict=True))
    kinds: list[list[str]] = [[], [], []]
    for i in sorted(seen.query_ids):
        accepted = confidence[i] >= opened.pipeline.config.thresholds.medium
        if accepted and right[i]:
            kinds[0].append(i)
        elif not accepted and not right[i]:
            kinds[1 if small.relevant(i) else 2].append(i)
    assert [q.query_id for q in seen.examples()] == [ids[0] for ids in kinds if ids]
    assert len(seen.examples()) >= 2


def test_the_bundled_model_can_be_measured(small: LabelledSet, tmp_path: Path) -> None:
    """On the corpus of the labels, although it has neither a folder nor a corpus of its own."""
    ids = small.splits["test"]
    qrels = {i: small.qrels[i] for i in ids if i in small.qrels}
    right = {d for grades in qrels.values() for d in grades}
    others = [d for d in small.corpus if d not in right][:40]  # fewer to encode
    corpus = {d: small.corpus[d] for d in [*sorted(right), *others]}
    queries = {i: small.queries[i] for i in ids}
    few = replace(small, corpus=corpus, queries=queries, qrels=qrels, splits={"test": ids})
    measured = evaluate(CalibratedReranker.load("default"), few, "test", work=tmp_path)
    assert len(measured.query_ids) == len(small.splits["test"])
    assert measured.table["calibrated"].auroc > 0.5


def test_what_flatters_the_figures_is_said(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """Measured where it was fitted, the model says so, whatever the set is called."""
    renamed = replace(small, name="another name")
    notes = evaluate(opened, renamed, "train", work=run.work).notes
    assert any(f"fitted on {len(run.plan.fit)} of these" in note for note in notes)
    other = replace(small, splits={"train": small.splits["test"]})
    assert evaluate(opened, other, "train", work=run.work).notes == ()


def test_group_mates_of_fitted_queries_flatter_too(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """Also if the model was fitted before they had a group: `promote` counts the same ones."""
    fitted, new = run.plan.fit.items[0].query_id, small.splits["test"][0]
    named = {i: replace(small.queries[i], metadata={"group": "one"}) for i in (fitted, new)}
    regrouped = replace(small, queries={**small.queries, **named})
    notes = evaluate(opened, regrouped, "test", work=run.work).notes
    assert any("fitted on 1 of these" in note for note in notes)


def test_an_unknown_split_is_refused(
    run: Run, small: LabelledSet, opened: CalibratedReranker
) -> None:
    """The refusal names the splits that there are."""
    with pytest.raises(InputError, match=r"no split 'tset'; it has \['train', 'test'\]"):
        evaluate(opened, small, "tset", work=run.work)

"""Copies of labelled queries without their answers: what is taken out, how many, and whose."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hand_made import make_scored

from rerank.assessment.pipeline import Pipeline
from rerank.config import Config
from rerank.data.labelled_set import Grouping
from rerank.data.labels import Labelled
from rerank.fitting import scored_plan
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.plan import Plan
from rerank.fitting.scored_plan import (
    ENOUGH_UNANSWERABLE,
    ScoredPlan,
    add_copies,
    answers,
    copies_in,
    copies_wanted,
    described_mixture,
    missed_share,
    score_search,
)
from rerank.types import Candidates, Passage, Query, Scored

WORDS = "the quick brown fox jumps over the lazy dog while seven wizards watch from the hill"


@pytest.fixture(scope="module")
def half(pipeline: Pipeline, config: Config) -> Pipeline:
    """The session's pipeline, with half of all questions expected to have no answer."""
    same = copy(pipeline)
    same.config = replace(config, expected_unanswerable=0.5)
    return same


@pytest.fixture(scope="module")
def answered(to_fit: Labelled[Scored]) -> Labelled[Candidates]:
    """The candidates of the queries that something answers."""
    plain = Labelled([s.candidates for s in to_fit.items], to_fit.groups, to_fit.grades)
    return plain.where(np.array([bool(grades) for grades in to_fit.grades]))


@pytest.fixture(scope="module")
def mixed(half: Pipeline, answered: Labelled[Candidates]) -> Labelled[Candidates]:
    """The same with copies."""
    return add_copies(half, answered)


def test_copies_bring_the_share_that_is_expected() -> None:
    """Real ones count, and no query is copied twice."""
    assert copies_wanted([True] * 80, 0.2) == 20
    assert copies_wanted([True] * 80 + [False] * 4, 0.2) == 16
    assert copies_wanted([True] * 80 + [False] * 19, 0.1) == 0
    assert copies_wanted([True] * 80, 0.9) == 80
    assert copies_wanted([True] * 80, 0.0) == copies_wanted([False] * 9, 0.5) == 0


def test_a_share_that_copies_cannot_reach_is_told() -> None:
    """There is one copy of each answerable query at most."""
    answered: list[dict[str, float]] = [{"d": 1.0}] * 40
    assert missed_share(answered, 0.8).startswith("50% of the queries fitted on have no answer")
    assert missed_share(answered, 0.5) == missed_share(answered, 0.0) == ""
    assert missed_share([*answered, *[{}] * ENOUGH_UNANSWERABLE], 0.8) == ""  # no copies are made


class _Unsearched:
    """A pipeline whose index brings nothing."""

    def __init__(self, config: Config) -> None:
        self.config = replace(config, expected_unanswerable=0.5)

    def retrieve(self, queries: Sequence[Query], **_: object) -> list[Candidates]:
        return [make_scored().candidates for _ in queries]

    def retrieve_without(self, queries: Sequence[Query], gone: object) -> list[Candidates]:
        return self.retrieve(queries)


@pytest.mark.parametrize(
    ("fitted_on", "copied"), [(ENOUGH_UNANSWERABLE - 1, True), (ENOUGH_UNANSWERABLE, False)]
)
def test_the_report_is_of_the_mixture_of_the_fit(
    fitted_on: int, copied: bool, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are copied or neither, however few of the reported queries have no answer."""

    def part(unanswered: int) -> Labelled[Query]:
        grades: list[dict[str, float]] = [{}] * unanswered + [{"d": 1.0}] * (40 - unanswered)
        return Labelled([Query("q")] * 40, np.arange(40).astype(np.str_), grades)

    seen: list[int] = []
    monkeypatch.setattr(
        scored_plan,
        "score_planned",
        lambda _, to_fit, to_report, **__: seen.extend(map(len, (to_fit, to_report))),
    )
    grouping = Grouping("question", "new", {})
    plan = Plan(part(fitted_on), part(2), "test", 0, 0, 0, False, 0, grouping, frozenset())
    score_search(cast(Pipeline, _Unsearched(config)), plan)
    assert [count > 40 for count in seen] == [copied, copied]


def test_near_duplicates_of_an_answer_go_with_it() -> None:
    """What is nearly the same text as a right passage answers as well, directly or in a chain."""
    texts = [WORDS, WORDS + " again", WORDS + " again and again", "something else altogether here"]
    passages = [Passage(f"d{i}", "", text) for i, text in enumerate(texts)]
    assert answers(passages, {"d0": 1.0}) == {"d0", "d1", "d2"}
    assert answers(passages, {"d3": 1.0, "unseen": 1.0}) == {"d3", "unseen"}


def test_a_copy_is_what_an_index_without_the_answers_gives(
    half: Pipeline, answered: Labelled[Candidates], mixed: Labelled[Candidates]
) -> None:
    """No right passage is in it, the list is as long, and the rest keeps its scores and order."""
    n = len(answered)
    assert len(mixed) == 2 * n
    assert mixed.items[:n] == list(answered.items)
    assert copies_in(mixed).tolist() == [False] * n + [True] * n
    by_id = {c.query.query_id: i for i, c in enumerate(answered.items)}
    for row in range(n, 2 * n):
        copy = mixed.items[row]
        original = by_id[copy.query.query_id.removesuffix(" (answers taken out)")]
        assert mixed.groups[row] == answered.groups[original]
        assert mixed.grades[row] == {}
        gone = answers(answered.items[original].passages, answered.grades[original])
        assert gone.isdisjoint(p.doc_id for p in copy.passages)
        assert len(copy) == half.config.candidates
        same = answered.items[original]
        kept = [p.doc_id for p in same.passages if p.doc_id not in gone]
        scores = dict(zip([p.doc_id for p in same.passages], same.first_stage.dense, strict=True))
        for passage, dense in zip(copy.passages, copy.first_stage.dense, strict=True):
            assert scores.get(passage.doc_id, dense) == pytest.approx(dense, abs=1e-6)
        assert len({p.doc_id for p in copy.passages} & set(kept)) >= len(kept) - 2


def test_nothing_taken_out_changes_nothing(
    pipeline: Pipeline, answered: Labelled[Candidates]
) -> None:
    """Without an id to leave out the candidates are those of a plain search."""
    queries = [c.query for c in answered.items[:5]]
    for plain, found in zip(
        pipeline.retrieve(queries),
        pipeline.retrieve_without(queries, [frozenset({"no such passage"})] * 5),
        strict=True,
    ):
        assert plain.passages == found.passages
        for name in ("rows", "bm25", "dense", "bm25_rank", "dense_rank", "fused"):
            ours, theirs = (getattr(c.first_stage, name) for c in (plain, found))
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        np.testing.assert_allclose(plain.features, found.features, atol=1e-6)


def test_the_promise_names_the_mixture(mixed: Labelled[Candidates]) -> None:
    """A certificate that rests on copies says what share of the questions has no answer."""
    assert described_mixture("new questions", mixed) == (
        "new questions, 50% of them without an answer here (expected, not seen)"
    )
    plain = mixed.where(~copies_in(mixed))
    assert described_mixture("new questions", plain) == "new questions"


def test_copies_are_no_questions_that_were_asked(
    fitted: Fitted, searched: ScoredPlan, config: Config
) -> None:
    """The drift alarm compares with the questions of people: copies are not in its sketch."""

    def marked(scored: Scored) -> Scored:
        query = Query(scored.query.text, "copy", {"answers_taken_out": True})
        return replace(scored, candidates=replace(scored.candidates, query=query))

    to_fit = searched.to_fit
    both = Labelled(
        [*to_fit.items, *(marked(s) for s in to_fit.items[:9])],
        np.concatenate([to_fit.groups, to_fit.groups[:9]]),
        [*to_fit.grades, *[{}] * 9],
    )
    found = fit(replace(searched, to_fit=both), config)
    assert len(found.right) == len(to_fit) + 9
    assert found.sketch.to_dict().keys() == fitted.sketch.to_dict().keys()
    assert found.sketch.rows == fitted.sketch.rows

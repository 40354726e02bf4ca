"""The queries of a plan as scored candidates, for each mode, to fit and to measure on.

They are scored without a cutoff. Those to fit on are ordered by a prior blind to the query's group.

If all labelled queries have an answer, a model never sees an unanswerable one. A copy is the same
query over the same passages, without those that are right for it and their near duplicates, and is
scored again. It stays in the group of its original. Enough copies are made to reach the expected
share of unanswerable queries. Right passages that nobody labelled stay in, so a copy can look more
wrong than it is: the model then errs towards doubt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration.maps import LogisticMap
from calibration.thresholds import ABOUT
from rerank.assessment.fitted_maps import FittedMaps, features_of
from rerank.assessment.metadata_features import Metadata
from rerank.assessment.pipeline import Pipeline, ReadPolicy
from rerank.assessment.ranking import prior_score
from rerank.data.checks import query_hash
from rerank.data.duplicates import near_duplicates
from rerank.data.labels import Grades, Labelled
from rerank.fitting.passage_maps import choose_cutoff, fit_prior
from rerank.fitting.plan import Plan
from rerank.types import (
    OWN_STAGES,
    Bools,
    Candidates,
    Floats,
    ListKind,
    Mode,
    Passage,
    Query,
    Scored,
)

LENGTHS = (5, 10, 20, 50)  # how many passages a caller brings, chosen by a query's hash
ENOUGH_UNANSWERABLE = 20  # labelled queries without an answer from which on no copies are made

ANSWERS_TAKEN_OUT = "answers_taken_out"  # metadata of a copy: true


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """Scored candidates to fit on and to report on, and what a fit must know besides.

    The fitted maps are shrunk towards the `pooled` ones: with few labels they stay close to them.
    """

    to_fit: Labelled[Scored]
    to_report: Labelled[Scored]
    policy: ReadPolicy  # which of them the model is to score
    about: str = ABOUT  # the questions that a certificate is about
    pooled: FittedMaps | None = None
    kind: ListKind = OWN_STAGES  # the stages that score
    metadata: Metadata = ()  # the last features, of the passages' metadata

    def where(self, chosen: Bools) -> ScoredPlan:
        """The same to fit on those queries only at which `chosen` (n,) is True."""
        return replace(self, to_fit=self.to_fit.where(chosen))


def score_modes(
    pipeline: Pipeline, planned: Plan, pooled: Mapping[Mode, FittedMaps]
) -> dict[Mode, ScoredPlan]:
    """The plan's queries with scored candidates, for each mode of the source, the main first."""
    source = pipeline.source
    if not source.scores_passages:
        return {source.modes[0]: score_lists(pipeline, planned)}
    plans: dict[Mode, ScoredPlan] = {
        "search": score_search(pipeline, planned, pooled.get("search"), source.cutoff)
    }
    if "rerank" in source.modes:
        plans["rerank"] = score_rerank(pipeline, plans["search"], pooled.get("rerank"))
    return plans


def score_search(
    pipeline: Pipeline, planned: Plan, pooled: FittedMaps | None = None, cutoff: float | None = None
) -> ScoredPlan:
    """The plan's queries, searched in the index, with unanswerable copies if the fit has too few.

    The report has copies only if the fit has some. Without a `cutoff`, one is chosen.
    """

    def retrieved(queries: Labelled[Query], use: str, *, copy: bool) -> Labelled[Candidates]:
        items = pipeline.retrieve(queries.items, label=f"finding candidates to {use} on")
        plain = queries.with_items(items)
        return add_copies(pipeline, plain) if copy else plain

    copy = not has_enough_unanswerable(planned.fit.grades)
    to_fit = to_report = retrieved(planned.fit, "fit", copy=copy)
    if not planned.cross_fitted:
        to_report = retrieved(planned.report, "report", copy=len(to_fit) > len(planned.fit))
    about = described_mixture(planned.grouping.about, to_fit)
    return score_planned(pipeline, to_fit, to_report, about=about, pooled=pooled, cutoff=cutoff)


def score_lists(pipeline: Pipeline, planned: Plan) -> ScoredPlan:
    """The plan's queries with the lists that came with them, which are scored already."""
    source = pipeline.source
    unused = (0.0,) * len(features_of(source.kind, source.metadata).passage)
    policy = ReadPolicy(LogisticMap(unused, 0.0, unused, (1.0,) * len(unused)))

    def read(queries: Labelled[Query]) -> Labelled[Scored]:
        return queries.with_items(pipeline.run(queries.items, policy))

    to_fit = read(planned.fit)
    return ScoredPlan(
        to_fit,
        to_fit if planned.cross_fitted else read(planned.report),
        policy,
        planned.grouping.about,
        kind=source.kind,
        metadata=source.metadata,
    )


def score_rerank(
    pipeline: Pipeline, searched: ScoredPlan, pooled: FittedMaps | None = None
) -> ScoredPlan:
    """The same queries, as if their callers had provided the likeliest 5, 10, 20 or 50 passages."""

    def from_callers(searched_for: Labelled[Scored]) -> Labelled[Candidates]:
        found = [scored.candidates for scored in searched_for.items]
        return searched_for.with_items(as_from_caller(pipeline, found))

    to_fit = to_report = from_callers(searched.to_fit)
    if searched.to_report is not searched.to_fit:
        to_report = from_callers(searched.to_report)
    about, cutoff = searched.about, searched.policy.cutoff
    return score_planned(pipeline, to_fit, to_report, about=about, pooled=pooled, cutoff=cutoff)


def as_from_caller(pipeline: Pipeline, candidates: Sequence[Candidates]) -> list[Candidates]:
    """The first `list_length` candidates of each query, as if the callers had provided them."""
    return [pipeline.source.as_from_caller(c, list_length(c.query)) for c in candidates]


def list_length(query: Query) -> int:
    """One of `LENGTHS`, by the hash of the query's id, else of its text: the same in any order."""
    return LENGTHS[int(query_hash(query.query_id or query.text), 16) % len(LENGTHS)]


def score_planned(
    pipeline: Pipeline,
    to_fit: Labelled[Candidates],
    to_report: Labelled[Candidates],
    *,
    about: str = ABOUT,
    pooled: FittedMaps | None = None,
    cutoff: float | None = None,
) -> ScoredPlan:
    """The candidates, scored; without a `cutoff`, one is chosen on those to fit on."""
    reference = pooled.policy.prior if pooled else None
    prior_map, own_prior = fit_prior(to_fit, pipeline.config, reference)

    def scored(some: Labelled[Candidates], prior: Sequence[Floats], use: str) -> Labelled[Scored]:
        label = f"scoring candidates to {use} on"
        return some.with_items(pipeline.score(some.items, prior, label=label))

    scored_to_fit = scored_to_report = scored(to_fit, own_prior, "fit")
    if to_report is not to_fit:
        prior = [prior_score(c, prior_map) for c in to_report.items]
        scored_to_report = scored(to_report, prior, "report")
    if cutoff is None:
        cutoff = choose_cutoff(scored_to_fit, pipeline.config, pooled)
    return ScoredPlan(
        scored_to_fit,
        scored_to_report,
        ReadPolicy(prior_map, cutoff),
        about,
        pooled,
        kind=pipeline.source.kind,
        metadata=pipeline.source.metadata,
    )


def copies_in(labelled: Labelled[Any]) -> Bools:
    """Which of the labelled queries (n,) are copies, whose answers were taken out."""
    return np.array([ANSWERS_TAKEN_OUT in i.query.metadata for i in labelled.items], dtype=np.bool_)


def copies_wanted(answered: Sequence[bool], share: float) -> int:
    """How many copies make unanswerable queries a `share` of all, in [0, 1).

    `answered`: for each labelled query, whether any passage is right for it. There is at most one
    copy of each answered query, and none if the others are the share already.

    >>> copies_wanted([True] * 40, 0.2)
    10
    """
    n, answerable = len(answered), sum(answered)
    wanted = (share * n - (n - answerable)) / (1 - share)
    return min(max(0, round(wanted)), answerable)


def missed_share(grades: Sequence[Grades], share: float) -> str:
    """A note if copies of the labelled queries cannot reach the `share`; otherwise ""."""
    answered = [bool(right) for right in grades]
    copies = copies_wanted(answered, share)
    reached = (len(answered) - sum(answered) + copies) / (len(answered) + copies)
    if has_enough_unanswerable(grades) or reached > share - 0.01:
        return ""
    return (
        f"{reached:.0%} of the queries fitted on have no answer, not the {share:.0%} of "
        "`expected_unanswerable` (--expected-unanswerable), because each answerable one gives one "
        "copy at most; label queries that nothing answers"
    )


def described_mixture(about: str, labelled: Labelled[Any]) -> str:
    """What a certificate is `about`, with the share of unanswerable queries if there are copies."""
    if not copies_in(labelled).any():
        return about
    share = sum(not grades for grades in labelled.grades) / len(labelled)
    return f"{about}, {share:.0%} of them without an answer here (expected, not seen)"


def has_enough_unanswerable(grades: Sequence[Grades]) -> bool:
    """Whether at least `ENOUGH_UNANSWERABLE` of the labelled queries have no answer."""
    return sum(not right for right in grades) >= ENOUGH_UNANSWERABLE


def add_copies(
    pipeline: Pipeline, candidates: Labelled[Candidates], share: float | None = None
) -> Labelled[Candidates]:
    """The labelled candidates, then copies: unanswerable ones are a `share` of all, if possible.

    Without one, it is `expected_unanswerable`. Copied queries are drawn by a hash of their text.
    """
    answered = [bool(grades) for grades in candidates.grades]
    share = pipeline.config.expected_unanswerable if share is None else share
    wanted = copies_wanted(answered, share)

    def drawn(row: int) -> tuple[str, str]:
        query = candidates.items[row].query
        key = f"{pipeline.config.seed} {query.text}"
        return hashlib.sha256(key.encode()).hexdigest(), query.query_id

    rows = sorted(sorted(np.flatnonzero(answered).tolist(), key=drawn)[:wanted])
    if not rows:
        return candidates
    copies = pipeline.retrieve_without(
        [_copy(candidates.items[i].query) for i in rows],
        [answers(candidates.items[i].passages, candidates.grades[i]) for i in rows],
    )
    return Labelled(
        [*candidates.items, *copies],
        np.concatenate([candidates.groups, candidates.groups[rows]]),
        [*candidates.grades, *({} for _ in rows)],
    )


def answers(passages: Sequence[Passage], grades: Grades) -> frozenset[str]:
    """Ids of the right passages, and of those among `passages` that are nearly the same."""
    ids = [passage.doc_id for passage in passages]
    duplicates = [(ids[a], ids[b]) for a, b in near_duplicates([p.text for p in passages])]
    right_ids, before = set(grades), 0
    while len(right_ids) > before:
        before = len(right_ids)
        right_ids.update(*(pair for pair in duplicates if not right_ids.isdisjoint(pair)))
    return frozenset(right_ids)


def _copy(query: Query) -> Query:
    metadata = {**query.metadata, ANSWERS_TAKEN_OUT: True}
    return replace(query, query_id=f"{query.query_id} (answers taken out)", metadata=metadata)

"""The queries of a plan as scored candidates, for each mode: what is fitted and measured on.

They are scored with no cutoff; what is fitted on is in the order of a prior that has not seen the
query's group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rerank.assessment.pipeline import Pipeline, ReadPolicy, prior_score
from rerank.data.labels import Labelled
from rerank.data.text import query_hash
from rerank.fitting.passages import choose_cutoff, fit_prior
from rerank.fitting.plan import Plan
from rerank.types import Candidates, Query, Scored

LENGTHS = (5, 10, 20, 50)  # passages that callers bring, as the hash of a query says


@dataclass(frozen=True, slots=True)
class PlannedRankings:
    """Scored candidates to fit on and to report on, and which of them the model is to score."""

    fit: Labelled[Scored]
    report: Labelled[Scored]
    policy: ReadPolicy


def search_rankings(pipeline: Pipeline, planned: Plan) -> PlannedRankings:
    """The plan's queries, asked of the index."""
    fit, report = (
        Labelled(pipeline.retrieve(part.items, label=label), part.groups, part.grades)
        for part, label in (
            (planned.fit, "finding candidates to fit on"),
            (planned.report, "finding candidates to report on"),
        )
    )
    return _score(pipeline, fit, report)


def rerank_rankings(pipeline: Pipeline, searched: PlannedRankings) -> PlannedRankings:
    """The same queries, as if their callers had brought the likeliest 5, 10, 20 or 50 passages.

    Most of these were scored as candidates of the index, and with a score cache are not scored
    again. The cutoff is the same.
    """
    fit, report = (
        Labelled(as_brought(pipeline, part.items), part.groups, part.grades)
        for part in (searched.fit, searched.report)
    )
    return _score(pipeline, fit, report, searched.policy.cutoff)


def as_brought(pipeline: Pipeline, scored: Sequence[Scored]) -> list[Candidates]:
    """The first candidates, as many as `list_length` says, as if the callers had brought them."""
    return [pipeline.as_brought(s.candidates, list_length(s.query)) for s in scored]


def list_length(query: Query) -> int:
    """One of `LENGTHS`, by the hash of the query's id, else of its text: the same in any order."""
    return LENGTHS[int(query_hash(query.query_id or query.text), 16) % len(LENGTHS)]


def _score(
    pipeline: Pipeline,
    fit: Labelled[Candidates],
    report: Labelled[Candidates],
    cutoff: float | None = None,
) -> PlannedRankings:
    """The candidates, scored; without a `cutoff`, one is chosen on those to fit on."""
    prior_map, own = fit_prior(fit, pipeline.config)
    of_report = [prior_score(c, prior_map) for c in report.items]
    to_fit, to_report = (
        Labelled(pipeline.score(part.items, prior, label=label), part.groups, part.grades)
        for part, prior, label in (
            (fit, own, "scoring candidates to fit on"),
            (report, of_report, "scoring candidates to report on"),
        )
    )
    if cutoff is None:
        cutoff = choose_cutoff(to_fit, pipeline.config)
    return PlannedRankings(to_fit, to_report, ReadPolicy(prior_map, cutoff))

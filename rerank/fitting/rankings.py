"""The queries of a plan as scored candidates, for each mode: what is fitted and measured on.

They are scored with no cutoff; what is fitted on is in the order of a prior that has not seen the
query's group.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

from calibration.maps import LogisticMap
from rerank.assessment.pipeline import Pipeline, ReadPolicy, prior_relevance
from rerank.data.labels import Labelled
from rerank.fitting.passages import choose_cutoff, cross_fitted_prior, fit_prior
from rerank.fitting.plan import Plan
from rerank.types import Candidates, Scored

LENGTHS = (5, 10, 20, 50)  # passages that callers bring, in turn


@dataclass(frozen=True, slots=True)
class PlannedRankings:
    """Scored candidates to fit on and to report on, and which of them the model is to score."""

    fit: Labelled[Scored]
    report: Labelled[Scored]
    policy: ReadPolicy


def search_rankings(pipeline: Pipeline, planned: Plan) -> PlannedRankings:
    """The plan's queries, asked of the index."""
    fit = planned.fit.map(
        lambda queries: pipeline.retrieve(queries, label="finding candidates to fit on")
    )
    report = planned.report.map(
        lambda queries: pipeline.retrieve(queries, label="finding candidates to report on")
    )
    prior = fit_prior(fit)
    scored = _score_to_fit(pipeline, fit, "scoring candidates to fit on")
    return PlannedRankings(
        scored,
        _score(pipeline, report, prior, "scoring candidates to report on"),
        ReadPolicy(prior, choose_cutoff(scored, pipeline.config)),
    )


def rerank_rankings(pipeline: Pipeline, searched: PlannedRankings) -> PlannedRankings:
    """The same queries, as if their callers had brought the likeliest 5, 10, 20 or 50 passages.

    Most of these were scored as candidates of the index, and with a score cache are not scored
    again. The cutoff is the same.
    """
    fit, report = (_as_brought(pipeline, part) for part in (searched.fit, searched.report))
    prior = fit_prior(fit)
    return PlannedRankings(
        _score_to_fit(pipeline, fit, "scoring brought passages to fit on"),
        _score(pipeline, report, prior, "scoring brought passages to report on"),
        ReadPolicy(prior, searched.policy.cutoff),
    )


def as_brought(pipeline: Pipeline, scored: list[Scored]) -> list[Candidates]:
    """The first `LENGTHS` candidates, in turn, as if the callers had brought them."""
    return [
        pipeline.as_brought(s.candidates, n) for s, n in zip(scored, cycle(LENGTHS), strict=False)
    ]


def _as_brought(pipeline: Pipeline, labelled: Labelled[Scored]) -> Labelled[Candidates]:
    return labelled.map(lambda scored: as_brought(pipeline, list(scored)))


def _score_to_fit(
    pipeline: Pipeline, labelled: Labelled[Candidates], label: str
) -> Labelled[Scored]:
    prior = cross_fitted_prior(labelled, pipeline.config)
    return labelled.map(lambda found: pipeline.score(found, prior, label=label))


def _score(
    pipeline: Pipeline, labelled: Labelled[Candidates], prior: LogisticMap, label: str
) -> Labelled[Scored]:
    return labelled.map(
        lambda found: pipeline.score(found, [prior_relevance(c, prior) for c in found], label=label)
    )

"""The queries of a plan as rankings: found by the index, and as their askers might bring them.

What is fitted on and what is measured are read with no floor; a ranking to fit on is in the order
of a prior that has not seen its query's group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

from rerank.assessment.pipeline import Pipeline, Reading, order
from rerank.data.labelled_set import LabelledSet
from rerank.fitting.fit import choose_floor, cross_ordered, fit_relevance
from rerank.fitting.plan import Plan
from rerank.types import Ranking

LENGTHS = (5, 10, 20, 50)  # passages that askers bring, in turn


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rankings to fit on, rankings to report on, and how the model is to read."""

    to_fit: list[Ranking]
    to_report: list[Ranking]
    reading: Reading


def rank_planned(pipeline: Pipeline, labelled: LabelledSet, planned: Plan) -> Ranked:
    """The plan's queries, whose passages the index finds."""
    config = pipeline.config
    to_fit = pipeline.find(
        [labelled.queries[i] for i in planned.fit], label="finding candidates to fit on"
    )
    prior = fit_relevance(to_fit, labelled)
    likely = cross_ordered(to_fit, labelled, config, rank_by="relevance")
    to_fit = pipeline.read(likely, label="reranking queries to fit on")
    reading = Reading(prior, choose_floor(to_fit, labelled, config))
    to_report = pipeline.rank(
        [labelled.queries[i] for i in planned.report],
        replace(reading, floor=0.0),
        label="reranking queries to report on",
    )
    return Ranked(to_fit, to_report, reading)


def rank_as_given(pipeline: Pipeline, labelled: LabelledSet, found: Ranked) -> Ranked:
    """The same queries, as if their askers had brought the likeliest 5, 10, 20 or 50 passages.

    Most of these were read where the index found them, and with a score cache are not read again.
    The floor is the same.
    """
    to_fit, to_report = (as_given(pipeline, ranked) for ranked in (found.to_fit, found.to_report))
    prior = fit_relevance(to_fit, labelled)
    likely = cross_ordered(to_fit, labelled, pipeline.config, rank_by="relevance")
    return Ranked(
        pipeline.read(likely, label="reranking given passages to fit on"),
        pipeline.read(
            [order(r, prior) for r in to_report], label="reranking given passages to report on"
        ),
        Reading(prior, found.reading.floor),
    )


def as_given(pipeline: Pipeline, rankings: Sequence[Ranking]) -> list[Ranking]:
    """The first `LENGTHS` passages of the rankings, in turn, as if their askers had brought them.

    They are unread and in fused order.
    """
    return [pipeline.as_given(r, n) for r, n in zip(rankings, cycle(LENGTHS), strict=False)]

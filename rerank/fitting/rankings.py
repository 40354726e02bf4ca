"""The queries of a plan as scored candidates, for each mode, to fit and to measure on.

They are scored without a cutoff. The candidates to fit on are ordered by a prior that has not seen
the query's group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.index_pipeline import IndexPipeline
from rerank.assessment.list_pipeline import ListPipeline, unused_policy
from rerank.assessment.pipeline import Pipeline, ReadPolicy
from rerank.assessment.ranking import prior_score
from rerank.assessment.retriever_pipeline import RetrieverPipeline
from rerank.data.canonical import query_hash
from rerank.data.labels import Labelled
from rerank.fitting.fit import FitContext
from rerank.fitting.passages import choose_cutoff, fit_prior
from rerank.fitting.plan import Plan
from rerank.fitting.unanswerable import add_copies, described_mixture, has_enough_unanswerable
from rerank.types import Candidates, Floats, Query, Scored

LENGTHS = (5, 10, 20, 50)  # how many passages a caller brings, chosen by a query's hash


@dataclass(frozen=True, slots=True)
class PlannedRankings:
    """Scored candidates to fit on and to report on, and which of them the model is to score."""

    fit: Labelled[Scored]
    report: Labelled[Scored]
    policy: ReadPolicy
    context: FitContext


def search_rankings(
    pipeline: Pipeline,
    planned: Plan,
    pooled: FittedMaps | None = None,
    cutoff: float | None = None,
) -> PlannedRankings:
    """The plan's queries, searched in the index, with unanswerable copies if the fit has too few.

    The report has copies only if the fit has some, so that both are the same mixture. Maps fitted
    on them are shrunk towards the `pooled` maps, if there are any. Without a `cutoff`, one is
    chosen.
    """

    def retrieved(queries: Labelled[Query], use: str, *, copy: bool) -> Labelled[Candidates]:
        items = pipeline.retrieve(queries.items, label=f"finding candidates to {use} on")
        plain = queries.with_items(items)
        return add_copies(pipeline, plain) if copy else plain

    fit = retrieved(planned.fit, "fit", copy=not has_enough_unanswerable(planned.fit.grades))
    report = fit
    if not planned.cross_fitted:
        report = retrieved(planned.report, "report", copy=len(fit) > len(planned.fit))
    about = described_mixture(planned.grouping.about, fit)
    context = FitContext(about, pooled, metadata=pipeline.metadata)
    return score_planned(pipeline, fit, report, context, cutoff)


def retriever_rankings(pipeline: RetrieverPipeline, planned: Plan) -> PlannedRankings:
    """The plan's queries, searched in another search system; all of its best candidates are scored.

    There are no pooled maps: only these labels show how the system's scores behave.
    """
    ranked = search_rankings(pipeline, planned, cutoff=0.0)
    return replace(ranked, context=replace(ranked.context, list_kind=pipeline.kind))


def list_rankings(pipeline: ListPipeline, planned: Plan) -> PlannedRankings:
    """The plan's queries with the lists that came with them, which are scored already."""
    policy = unused_policy(pipeline)

    def read(queries: Labelled[Query]) -> Labelled[Scored]:
        return queries.with_items(pipeline.run(queries.items, policy))

    fit = read(planned.fit)
    report = fit if planned.cross_fitted else read(planned.report)
    about, kind = planned.grouping.about, pipeline.kind
    context = FitContext(about, list_kind=kind, metadata=pipeline.metadata)
    return PlannedRankings(fit, report, policy, context)


def rerank_rankings(
    pipeline: IndexPipeline, searched: PlannedRankings, pooled: FittedMaps | None = None
) -> PlannedRankings:
    """The same queries, as if their callers had provided the likeliest 5, 10, 20 or 50 passages.

    Most of these were scored as candidates of the index; with a score cache they are not scored
    again. The cutoff is the same.
    """

    def provided(searched_for: Labelled[Scored]) -> Labelled[Candidates]:
        found = [scored.candidates for scored in searched_for.items]
        return searched_for.with_items(as_from_caller(pipeline, found))

    fit = provided(searched.fit)
    report = fit
    if searched.report is not searched.fit:
        report = provided(searched.report)
    context = replace(searched.context, pooled=pooled)
    return score_planned(pipeline, fit, report, context, searched.policy.cutoff)


def as_from_caller(pipeline: IndexPipeline, candidates: Sequence[Candidates]) -> list[Candidates]:
    """The first `list_length` candidates of each query, as if the callers had provided them."""
    return [pipeline.as_from_caller(c, list_length(c.query)) for c in candidates]


def list_length(query: Query) -> int:
    """One of `LENGTHS`, by the hash of the query's id, else of its text: the same in any order."""
    return LENGTHS[int(query_hash(query.query_id or query.text), 16) % len(LENGTHS)]


def score_planned(
    pipeline: Pipeline,
    fit: Labelled[Candidates],
    report: Labelled[Candidates],
    context: FitContext,
    cutoff: float | None = None,
) -> PlannedRankings:
    """The candidates, scored; without a `cutoff`, one is chosen on those to fit on.

    Only the labels of `fit` decide which passages are scored. If the report is on the queries
    fitted on, they are scored once.
    """
    pooled = context.pooled
    reference = pooled.policy.prior if pooled else None
    prior_map, own_prior = fit_prior(fit, pipeline.config, reference)

    def scored(
        candidates: Labelled[Candidates], prior: Sequence[Floats], use: str
    ) -> Labelled[Scored]:
        label = f"scoring candidates to {use} on"
        return candidates.with_items(pipeline.score(candidates.items, prior, label=label))

    to_fit = to_report = scored(fit, own_prior, "fit")
    if report is not fit:
        to_report = scored(report, [prior_score(c, prior_map) for c in report.items], "report")
    if cutoff is None:
        cutoff = choose_cutoff(to_fit, pipeline.config, pooled)
    return PlannedRankings(to_fit, to_report, ReadPolicy(prior_map, cutoff), context)

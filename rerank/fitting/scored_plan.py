"""The queries of a plan as scored candidates, for each mode, to fit and to measure on.

They are scored without a cutoff. The candidates to fit on are ordered by a prior that has not seen
the query's group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from calibration.maps import LogisticMap
from calibration.thresholds import ABOUT
from rerank.assessment.fitted_maps import FittedMaps, features_of
from rerank.assessment.metadata_features import Metadata
from rerank.assessment.pipeline import Pipeline, ReadPolicy
from rerank.assessment.ranking import prior_score
from rerank.data.checks import query_hash
from rerank.data.labels import Labelled
from rerank.fitting.passage_maps import choose_cutoff, fit_prior
from rerank.fitting.plan import Plan
from rerank.fitting.unanswerable import add_copies, described_mixture, has_enough_unanswerable
from rerank.types import OWN_STAGES, Bools, Candidates, Floats, ListKind, Mode, Query, Scored

LENGTHS = (5, 10, 20, 50)  # how many passages a caller brings, chosen by a query's hash


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """Scored candidates to fit on and to report on, and what a fit must know besides.

    The fitted maps are shrunk towards the `pooled` ones: with few labels they stay close to them,
    with many they do not.
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

    The report has copies only if the fit has some, so that both are the same mixture. Without a
    `cutoff`, one is chosen.
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
    """The same queries, as if their callers had provided the likeliest 5, 10, 20 or 50 passages.

    Most of these were scored as candidates of the index; with a score cache they are not scored
    again. The cutoff is the same.
    """

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
    """The candidates, scored; without a `cutoff`, one is chosen on those to fit on.

    Only the labels of `to_fit` decide which passages are scored. If the report is on the queries
    fitted on, they are scored once.
    """
    reference = pooled.policy.prior if pooled else None
    prior_map, own_prior = fit_prior(to_fit, pipeline.config, reference)

    def scored(
        candidates: Labelled[Candidates], prior_scores: Sequence[Floats], use: str
    ) -> Labelled[Scored]:
        label = f"scoring candidates to {use} on"
        return candidates.with_items(pipeline.score(candidates.items, prior_scores, label=label))

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

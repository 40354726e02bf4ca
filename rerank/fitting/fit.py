"""Fit the maps on labelled rankings, without files or tracking.

Everything is cross-fitted by query group (Stone 1974): a query's features and its out-of-fold
confidence come from maps that were not fitted on its group. As in stacking (Wolpert 1992), not
every step is blind: the confidence of one fold is fitted on features of the other folds, whose
relevance maps have seen this fold's labels. No effect of this was measured.

`fit_folds` is nested cross-fitting (Varma and Simon 2006): the whole fit is made again for each
fold, so a report needs no labels of its own. Only the choice of passages to score is not repeated.
The folds share most of their queries, so intervals are a little too narrow (Bates, Hastie and
Tibshirani 2024): `make promise` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.arrays import group_codes
from calibration.drift import MIN_ROWS, Sketch, sketch
from calibration.maps import LogisticMap
from calibration.metrics.intervals import effective_n
from calibration.recalibration import Segments, fit_segments
from calibration.selection import MINIMUM_ROWS, enough_rows, grouped_folds, held_out
from calibration.thresholds import ABOUT, Certificate, certify
from rerank.assessment.fitted_maps import FittedMaps, features_of, range_of
from rerank.assessment.predictions import have_passages, segments_of
from rerank.assessment.ranking_features import ranking_features
from rerank.assessment.relevance import DEPTH, fit_hazards
from rerank.config import Config
from rerank.data.grouping import NEW_DOCUMENTS, THESE_DOCUMENTS, sampled_units
from rerank.data.labels import Labelled, Labels, hits
from rerank.errors import InputError, optional
from rerank.evaluation.baselines import best_logit, highest
from rerank.fitting.certificates import Hazards, certify_context, require_both_kinds
from rerank.fitting.passage_maps import choose_cutoff, fit_rankings, read_labelled
from rerank.fitting.scored_plan import ScoredPlan, copies_in
from rerank.process import in_processes
from rerank.progress import progress_shown
from rerank.types import Bools, Floats, Mode, Ranking, Scored, main_mode

if TYPE_CHECKING:
    from calibration.fitting import BestFit

AUTO = ("logistic", "beta", "isotonic")  # what `auto` chooses from, simple to complex
SHRUNK = "The maps are shrunk towards those of other labelled sets."
NOT_SHRUNK = "No maps of other sets are known for these models: all is learned from these labels."


@dataclass(frozen=True, slots=True)
class Fitted:
    """The maps, the calibrator that was chosen and why, and the fitted baseline."""

    maps: FittedMaps
    calibrator: str
    reason: str  # one sentence
    temperature: LogisticMap  # the best logit / a fitted number -> P(the top one is right)
    effective: float  # effective number of independent queries fitted on
    reference: LogisticMap | None  # the pooled map that the confidence is shrunk towards
    # of the queries fitted on, in orders by maps that had not seen them: (n, d), and (n,)
    features: Floats = field(compare=False, repr=False)
    right: Labels = field(compare=False, repr=False)
    groups: NDArray[np.str_] = field(compare=False, repr=False)  # (n,)
    copies: Bools = field(compare=False, repr=False)  # (n,) unanswerable copies of other queries
    has_passages: Bools = field(compare=False, repr=False)  # (n,) some passage was found
    rows: Bools = field(compare=False, repr=False)  # (n,) those of `rows_to_fit`

    @property
    def sketch(self) -> Sketch:
        """The distribution of the features, copies left out, for the drift alarm.

        The features are of orders by maps of the other folds: with two or three folds these differ
        from the map that is kept, and the alarm may be early.
        """
        originals = ~self.copies
        return sketch_with_passages(
            self.features[originals],
            list(self.maps.features.ranking),
            self.groups[originals],
            self.has_passages[originals],
        )

    def scaled_logit(self, ranking: Ranking) -> float:
        """The baseline's confidence in a ranking, in [0, 1]."""
        return float(self.temperature.predict([best_logit(ranking)])[0])


def sketch_with_passages(
    features: Floats, names: Sequence[str], groups: NDArray[Any], has_passages: Bools
) -> Sketch:
    """The distribution of the features (n, d) of queries for which passages were found.

    If these are of too few groups (n,), all count.
    """
    if len(set(groups[has_passages].tolist())) < MIN_ROWS:
        has_passages = np.ones(len(features), dtype=np.bool_)
    return sketch(features[has_passages], names, groups[has_passages])


def fit(scored_plan: ScoredPlan, config: Config, *, to_keep: bool = False) -> Fitted:
    """Fit score, confidence and hazards on the candidates to fit on, cross-fitted by query group.

    A query's features are computed on an order by a score map that has not seen its group, and the
    certificates rest on confidences of such maps: one is about new questions, and of a model
    `to_keep` one about new documents, if the groups are larger than questions, and one about the
    first passages. The maps that are kept are refitted on everything. A query without passages has
    confidence 0 by definition: the certificate counts it, and the confidence is fitted on the
    others. The candidates had no cutoff, which the baseline needs.
    """
    with optional():
        from calibration.score_fitting import fit_temperature

    scored, about, pooled = scored_plan.to_fit, scored_plan.about, scored_plan.pooled
    reference = pooled.confidence.as_logistic() if pooled else None
    hazards: Hazards = (pooled.hazard, pooled.hazard_after_hit) if pooled else (None, None)
    unordered = read_labelled(scored, scored_plan.policy.cutoff)
    score, ordered = fit_rankings(unordered, config, pooled.score if pooled else None)
    features = ranking_features(ordered.items, features_of(scored_plan.kind).ranking)
    right_within, has_passages = hits(ordered, depth=DEPTH), have_passages(ordered.items)
    right = right_within[:, 0]
    rows = rows_to_fit(right, has_passages, scored.groups)
    best, reason, segments, cross_fitted = _fit_confidence(
        ordered.where(rows), features[rows], right[rows], config, reference
    )
    out_of_fold = np.zeros(len(right))
    out_of_fold[rows] = np.where(has_passages[rows], cross_fitted, 0.0)
    units = sampled_units(r.query for r in ordered.items)
    target, of_groups = config.thresholds.advisory, about
    answered, copies = [bool(grades) for grades in ordered.grades], copies_in(scored)

    def checked(certificate: Certificate) -> Certificate:
        return require_both_kinds(replace(certificate, copies=int(copies.sum())), answered)

    promise = partial(certify, right, out_of_fold, target=target, floor=target)
    larger = len(set(ordered.groups.tolist())) < len(set(units.tolist()))
    if larger and config.promise == "documents":
        units = ordered.groups
    elif larger:
        about = about.replace(NEW_DOCUMENTS, ABOUT).replace(THESE_DOCUMENTS, ABOUT)
    certificate = checked(promise(groups=units, about=about))
    context_certificate, stopping_threshold, documents_certificate = None, None, None
    if to_keep:
        if larger and config.promise == "both":
            documents_certificate = checked(promise(groups=ordered.groups, about=of_groups))
        most = best.map.max_probability
        context_certificate, stopping_threshold = certify_context(
            ordered,
            out_of_fold,
            right_within,
            config,
            hazards,
            max_probability=most,
            units=units,
            about=about,
        )
        context_certificate = checked(context_certificate)
    hazard, hazard_after_hit = fit_hazards(ordered, out_of_fold, hazards)
    best_logits = np.array([highest(s.logits) for s in scored.items])
    errors, numbers = (right - out_of_fold)[rows], group_codes(scored.groups[rows], int(rows.sum()))
    return Fitted(
        maps=FittedMaps(
            policy=scored_plan.policy,
            score=score,
            confidence=best.map,
            hazard=hazard,
            hazard_after_hit=hazard_after_hit,
            certificate=certificate,
            segments=segments,
            documents_certificate=documents_certificate,
            context_certificate=context_certificate,
            stopping_threshold=stopping_threshold,
            kind=scored_plan.kind,
            metadata=scored_plan.metadata,
            feature_range=range_of(features[rows]),
            filters=frozenset(s.query.filtered_by for s in scored.items),
        ),
        calibrator=best.choice.name,
        reason=f"{reason} {SHRUNK if pooled else NOT_SHRUNK}",
        temperature=fit_temperature(best_logits[rows], right[rows]),
        effective=effective_n(errors - errors.mean(), numbers),
        reference=reference,
        features=features,
        right=right,
        groups=scored.groups,
        copies=copies,
        has_passages=has_passages,
        rows=rows,
    )


def rows_to_fit(right: Labels, has_passages: Bools, groups: NDArray[np.str_]) -> Bools:
    """Which queries (n,) a confidence is fitted on: those with passages, `has_passages` (n,).

    All of them, if those with passages are all right (n,), all wrong, or of one group (n,).
    """
    outcomes, kept = set(right[has_passages].tolist()), set(groups[has_passages].tolist())
    several = len(outcomes) == 2 and len(kept) > 1
    return has_passages if several else np.ones(len(has_passages), dtype=np.bool_)


def _fit_confidence(
    ordered: Labelled[Ranking],
    features: Floats,
    right: Labels,
    config: Config,
    reference: LogisticMap | None,
) -> tuple[BestFit, str, Segments, Floats]:
    """Choose the calibrator, if it is `auto`, and fit it on features (n, d); then the segments.

    Returns the fit, why this calibrator, the segments, and out-of-fold confidences (n,).
    """
    with optional():
        from calibration.fitting import fit_best

    automatic, groups = config.calibrator == "auto", ordered.groups
    considered = AUTO if automatic else (config.calibrator,)
    how: dict[str, Any] = {"folds": config.folds, "random_state": config.seed}
    best = fit_best(considered, features, right, groups, reference=reference, **how)
    choice = best.choice
    reason = choice.reason if automatic else "As asked for."
    if not enough_rows(choice.name, best.effective):  # `auto` does not consider it
        reason += (
            f" It may be too sure at both ends: it takes {MINIMUM_ROWS[choice.name]:,} independent "
            f"labels, and by which of them are right these are worth {best.effective:.0f}."
        )
    if choice.losses[choice.name] >= best.of_base_rate:
        reason += (
            f" It is no better than the same confidence for all queries, whose log loss is "
            f"{best.of_base_rate:.4f}: these labels do not show yet that the features tell right "
            "from wrong."
        )
    if not config.segment_by:
        return best, reason, Segments(), best.out_of_fold
    named = segments_of(ordered.items, config.segment_by)
    return best, reason, *fit_segments(best.out_of_fold, right, named, groups, **how)


def fit_modes(scored: Mapping[Mode, ScoredPlan], config: Config) -> dict[Mode, Fitted]:
    """The fit of each mode; only the main mode can certify the first passages."""
    main = main_mode(scored)
    modes = list(scored)
    fitted = in_processes(lambda mode: fit(scored[mode], config, to_keep=mode == main), modes)
    return dict(zip(modes, fitted, strict=True))


class FittedFold(NamedTuple):
    """Queries to measure on, scored without a cutoff, and a fit that has not seen their groups."""

    scored: Labelled[Scored]
    fitted: Fitted


def fit_folds(scored: Mapping[Mode, ScoredPlan], config: Config) -> dict[Mode, list[FittedFold]]:
    """For each mode and fold: the queries that the fold measures, and the fit on all others.

    Folds are whole groups, and each query is measured once. The cutoff of a fold is chosen by the
    queries outside of it, in the main mode.
    """
    main = scored[main_mode(scored)]

    def fit_fold(held: Bools) -> dict[Mode, Fitted]:
        cutoff = main.policy.cutoff
        with progress_shown(on=False):
            if not main.kind.stages:
                cutoff = choose_cutoff(main.to_fit.where(~held), config, main.pooled)
            plans = {
                mode: replace(plan.where(~held), policy=replace(plan.policy, cutoff=cutoff))
                for mode, plan in scored.items()
            }
            return {mode: fit(plan, config) for mode, plan in plans.items()}

    fold_of = grouped_folds(main.to_fit.groups, config.folds, random_state=config.seed)
    all_held = list(held_out(fold_of))
    fitted = in_processes(fit_fold, all_held)
    return {
        mode: [
            FittedFold(plan.to_fit.where(held), by_mode[mode])
            for held, by_mode in zip(all_held, fitted, strict=True)
        ]
        for mode, plan in scored.items()
    }


def check_both_outcomes(right: Labels, name: str) -> None:
    """Refuse to learn a confidence if every answer, or none, is right."""
    if right.any() and not right.all():
        return
    outcome, remedy = "wrong", "queries that the passages answer, and check the ids in qrels/"
    if right.all():
        outcome, remedy = "right", "queries that are harder, or that nothing answers"
    raise InputError(
        f"{name}: the top passage is {outcome} for all of the {len(right)} queries to fit on. A "
        f"confidence is learned from both outcomes, and a constant tells nothing: add {remedy}"
    )

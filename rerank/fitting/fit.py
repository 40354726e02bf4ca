"""Labelled rankings to maps: the fitting, without files or tracking.

Everything is cross-fitted by query group (Stone 1974): the maps that a query's features and scores
are computed from have not seen that query's group. Only the cutoff of scoring, one number, is
chosen on all of the queries that are fitted on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from calibration.effective import effective_n
from calibration.maps import LogisticMap
from calibration.metrics import LEAST_GROUPS
from calibration.monitoring.drift import Sketch, sketch
from calibration.segments import Segments, cross_fit_segments, fit_segments
from calibration.selection import choose, enough_rows, grouped_folds, grouped_standard_error
from calibration.thresholds import ABOUT, certify
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.judge import segments_of
from rerank.assessment.pipeline import (
    ReadPolicy,
    limit_scored,
    prior_relevance,
    rank,
    scored_features,
    unscored_features,
)
from rerank.assessment.ranking_features import RANKING_FEATURES, ranking_features
from rerank.assessment.sufficiency import fit_hazard
from rerank.config import Config
from rerank.data.labels import Labelled, Labels, hits, passage_labels
from rerank.errors import InputError
from rerank.evaluation.baselines import best_logit
from rerank.evaluation.ranking_metrics import order_quality
from rerank.progress import progress
from rerank.types import Candidates, Floats, Ranking, Scored

AUTO = ("logistic", "beta", "isotonic")  # what `auto` chooses from, simple to complex
CUTOFFS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # of the best prior relevance
CUTOFF_LOSS = 0.005  # share of nDCG@10 that scoring fewer passages may cost
RELEVANCE_C = 1.0  # inverse penalty of the passage map, which has thousands of rows


Item = TypeVar("Item", Candidates, Scored)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Fitted:
    """The maps, which calibrator was taken and why, and the baseline that learns too."""

    maps: FittedMaps
    calibrator: str
    reason: str  # one sentence
    temperature: LogisticMap  # the best logit divided by one number, to P(the top one is right)
    sketch: Sketch  # of the features, for the drift alarm
    effective: float  # independent queries that the queries fitted on are worth
    # of the queries fitted on, in orders that had not seen them: (n, d), and (n,)
    features: Floats = field(compare=False, repr=False)
    right: Labels = field(compare=False, repr=False)
    groups: Sequence[str] = field(compare=False, repr=False)  # (n,)

    def scaled_logit(self, ranking: Ranking) -> float:
        """The baseline's confidence in a ranking, in [0, 1]."""
        return float(self.temperature.predict([best_logit(ranking)])[0])


def fit_prior(candidates: Labelled[Candidates]) -> LogisticMap:
    """What the first stage says of a passage to P(it is right): logistic regression over all."""
    return _fit_passages([unscored_features(c) for c in candidates.items], candidates)


def cross_fitted_prior(candidates: Labelled[Candidates], config: Config) -> list[Floats]:
    """The prior relevance of each query's candidates, by a map that has not seen its group."""
    return _cross_fit(candidates, config, fit_prior, prior_relevance)


def fit_relevance(scored: Labelled[Scored]) -> LogisticMap:
    """A passage's features to P(it is right): logistic regression over all candidates."""
    return _fit_passages([scored_features(s) for s in scored.items], scored)


def cross_ordered(scored: Labelled[Scored], config: Config) -> Labelled[Ranking]:
    """Rankings in the order of a relevance map that has not seen their query's group."""

    def ordered(one: Scored, relevance: LogisticMap) -> Ranking:
        return rank(one, relevance, rank_by=config.rank_by)

    return scored.map(lambda _: _cross_fit(scored, config, fit_relevance, ordered))


def _cross_fit(
    labelled: Labelled[Item],
    config: Config,
    fit_map: Callable[[Labelled[Item]], LogisticMap],
    apply: Callable[[Item, LogisticMap], Made],
) -> list[Made]:
    """`apply` to each item, with a map fitted on the queries of the other folds."""
    folds = grouped_folds(labelled.groups, config.folds, random_state=config.seed)
    maps = {fold: fit_map(labelled.where(folds != fold)) for fold in set(folds.tolist())}
    pairs = zip(labelled.items, folds.tolist(), strict=True)
    return [apply(item, maps[fold]) for item, fold in pairs]


def choose_cutoff(scored: Labelled[Scored], config: Config) -> float:
    """How unlikely a passage may be and still be scored; 0 where all of the first should be.

    The highest of `CUTOFFS` up to which scoring fewer passages costs no more than 0.5 % of nDCG@10,
    with one standard error to spare. `scored` had no cutoff; the orders are cross-fitted at each.
    """
    answered = np.array([bool(grades) for grades in scored.grades], dtype=np.bool_)
    groups = scored.groups[answered]
    if len(set(groups)) < LEAST_GROUPS:
        return 0.0

    def quality(cutoff: float) -> Floats:
        ordered = cross_ordered(limited(scored, cutoff), config)
        return order_quality([r.doc_ids for r in ordered.items], ordered.grades).ndcg10

    whole = quality(0.0)
    taken = 0.0
    with progress(len(CUTOFFS), "choosing what to score", unit="cutoff") as bar:
        for cutoff in CUTOFFS:
            lost = whole - quality(cutoff)
            bar.update()
            error = grouped_standard_error(lost, groups)
            if lost.mean() + error > CUTOFF_LOSS * whole.mean():
                break
            taken = cutoff
    return taken


def limited(scored: Labelled[Scored], cutoff: float) -> Labelled[Scored]:
    """The candidates as they would be, had only those above the cutoff been scored."""
    return scored.map(lambda items: [limit_scored(s, cutoff) for s in items])


def fit(
    scored: Labelled[Scored], policy: ReadPolicy, config: Config, *, about: str = ABOUT
) -> Fitted:
    """Fit relevance, confidence and hazard on labelled candidates, cross-fitted by query group.

    The features of a query are computed on the order that a relevance map gives which has not
    seen the query's group, and the certificate rests on confidences of maps that have not; the
    maps that are kept are refitted on everything. `scored` had no cutoff, as the baseline takes
    it; `policy` says how much of it the model will score. `about` names the questions that the
    certificate is about.
    """
    from calibration.fitting import cross_fit_two_stage, fit_two_stage
    from calibration.score_fitting import fit_temperature

    groups, seen = scored.groups, limited(scored, policy.cutoff)
    ordered = cross_ordered(seen, config)
    features, right = ranking_features(ordered.items), hits(ordered)
    asked = AUTO if config.calibrator == "auto" else (config.calibrator,)
    worth = effective_n(right - right.mean(), groups)
    names = [name for name in asked if asked is not AUTO or enough_rows(name, worth)]
    out_of_fold = cross_fit_two_stage(
        names, features, right, groups, folds=config.folds, random_state=config.seed
    )
    left_out = [name for name in asked if name not in names]
    choice = choose(out_of_fold, right, groups, left_out=left_out, worth=worth)
    confidence, _, _ = fit_two_stage(
        features,
        right,
        groups,
        then=choice.name,
        folds=config.folds,
        random_state=config.seed,
    )
    unseen, segments = out_of_fold[choice.name], Segments()
    if config.segment_by:
        named = segments_of(ordered.items, config.segment_by)
        segments = fit_segments(unseen, right, named, groups)
        unseen = cross_fit_segments(
            unseen, right, named, groups, folds=config.folds, random_state=config.seed
        )
    certificate = certify(
        right,
        unseen,
        groups=groups,
        target=config.thresholds.medium,
        about=about,
    )
    return Fitted(
        FittedMaps(
            policy,
            fit_relevance(seen),
            confidence,
            fit_hazard(ordered, unseen),
            certificate,
            segments,
        ),
        choice.name,
        choice.reason if asked is AUTO else "As asked for.",
        fit_temperature(np.array([_best_logit(s) for s in scored.items]), right),
        sketch(features, list(RANKING_FEATURES), groups),
        effective_n(right - unseen, groups),
        features,
        right,
        groups.tolist(),
    )


def _fit_passages(features: Sequence[Floats], labelled: Labelled[Any]) -> LogisticMap:
    from calibration.fitting import fit_logistic

    filled = [i for i, rows in enumerate(features) if len(rows)]
    if not filled:
        raise InputError("no query brought back a passage; is the corpus the one of the queries?")
    labels = passage_labels(labelled)
    X = np.concatenate([features[i] for i in filled])
    y = np.concatenate([labels[i] for i in filled])
    return fit_logistic(X, y, C=RELEVANCE_C)


def _best_logit(scored: Scored) -> float:
    return float(scored.logits.max()) if len(scored.logits) else 0.0

"""The maps of single passages, each fitted on the passages of all labelled queries.

The prior uses the first-stage features; it chooses the passages that the cross-encoder scores. The
score also uses the cross-encoder's features. Both are cross-fitted by query group (Stone 1974): the
map applied to a query has not seen its group. Only the cutoff, one number, is chosen on all
queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration.arrays import group_codes
from calibration.effective_sample_size import grouped_standard_error
from calibration.maps import LogisticMap
from calibration.metrics import MIN_GROUPS
from calibration.selection import grouped_folds
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.ranking import (
    limit_scored,
    prior_score,
    rank,
    scored_features,
    unscored_features,
)
from rerank.config import Config
from rerank.data.labels import Labelled, passage_labels
from rerank.errors import InputError, optional
from rerank.evaluation.ranking_metrics import order_quality
from rerank.progress import progress
from rerank.types import Bools, Candidates, Floats, Ranking, Scored

CUTOFFS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # shares of the best prior score
CUTOFF_LOSS = 0.005  # share of nDCG@10 that scoring fewer passages may cost
SCORE_C = 1.0  # inverse penalty of a map, which is fitted on thousands of rows
STEP_C = 0.1  # variance of a map's deviation from the pooled one; more would bias the features

Model = TypeVar("Model")
Made = TypeVar("Made")


def fit_prior(
    candidates: Labelled[Candidates], config: Config, reference: LogisticMap | None = None
) -> tuple[LogisticMap, list[Floats]]:
    """The map of `fit_prior_map`, and the prior score of each query's candidates, (n,) each.

    The scores come from maps that have not seen the query's group.
    """
    scores = cross_fit_rows(
        candidates.groups,
        config,
        lambda seen: fit_prior_map(candidates.where(seen), reference),
        lambda i, prior: prior_score(candidates.items[i], prior),
    )
    return fit_prior_map(candidates, reference), scores


def fit_prior_map(
    candidates: Labelled[Candidates], reference: LogisticMap | None = None
) -> LogisticMap:
    """Map first-stage features to P(a passage is right): logistic regression over all passages."""
    return _fit_passages([unscored_features(c) for c in candidates.items], candidates, reference)


def fit_score(scored: Labelled[Scored], reference: LogisticMap | None = None) -> LogisticMap:
    """Map a passage's features to P(it is right): logistic regression over all passages."""
    return _fit_passages([scored_features(s) for s in scored.items], scored, reference)


def cross_fit_rankings(
    scored: Labelled[Scored], config: Config, reference: LogisticMap | None = None
) -> Labelled[Ranking]:
    """Rankings ordered by score maps that have not seen the query's group."""
    rankings = cross_fit_rows(
        scored.groups,
        config,
        lambda seen: fit_score(scored.where(seen), reference),
        lambda i, score: rank(scored.items[i], score, rank_by=config.rank_by),
    )
    return scored.with_items(rankings)


def cross_fit_rows(
    groups: NDArray[Any],
    config: Config,
    fit_on: Callable[[Bools], Model],
    apply: Callable[[int, Model], Made],
) -> list[Made]:
    """`apply(i, fitted)` for each row i, where `fitted` is `fit_on` of the other folds' rows."""
    folds = grouped_folds(groups, config.folds, random_state=config.seed)
    fitted = {fold: fit_on(folds != fold) for fold in set(folds.tolist())}
    return [apply(i, fitted[fold]) for i, fold in enumerate(folds.tolist())]


def choose_cutoff(
    scored: Labelled[Scored], config: Config, pooled: FittedMaps | None = None
) -> float:
    """The share of the best prior score that a passage needs to be scored; 0 for no cutoff.

    It is the highest of `CUTOFFS` up to which scoring fewer passages costs no more than 0.5% of
    nDCG@10, with one standard error to spare. `scored` had no cutoff; the orders are cross-fitted
    at each cutoff. With too few groups it is the pooled maps' cutoff, or 0 without pooled maps.
    """
    answered = np.array([bool(grades) for grades in scored.grades], dtype=np.bool_)
    groups = scored.groups[answered]
    if len(set(groups)) < MIN_GROUPS:
        return pooled.policy.cutoff if pooled else 0.0
    reference = pooled.score if pooled else None

    def quality(cutoff: float) -> Floats:
        ordered = cross_fit_rankings(limit_labelled(scored, cutoff), config, reference)
        return order_quality([r.doc_ids for r in ordered.items], ordered.grades).ndcg10

    without_cutoff = quality(0.0)
    chosen = 0.0
    with progress(len(CUTOFFS), "choosing what to score", unit="cutoff") as bar:
        for cutoff in CUTOFFS:
            lost = without_cutoff - quality(cutoff)
            bar.update()
            error = grouped_standard_error(lost, group_codes(groups, len(lost)))
            if lost.mean() + error > CUTOFF_LOSS * without_cutoff.mean():
                break
            chosen = cutoff
    return chosen


def limit_labelled(scored: Labelled[Scored], cutoff: float) -> Labelled[Scored]:
    """The candidates as if only those above the cutoff had been scored."""
    return scored.with_items([limit_scored(s, cutoff) for s in scored.items])


def _fit_passages(
    features: Sequence[Floats], labelled: Labelled[Any], reference: LogisticMap | None
) -> LogisticMap:
    with optional():
        from calibration.fitting import fit_logistic
        from calibration.shrinkage import fit_shrunk

    with_passages = [i for i, rows in enumerate(features) if len(rows)]
    if not with_passages:
        raise InputError(
            "no passage was found for any query; is the corpus the one of the queries?"
        )
    labels = passage_labels(labelled)
    X = np.concatenate([features[i] for i in with_passages])
    y = np.concatenate([labels[i] for i in with_passages])
    if reference is None:
        return fit_logistic(X, y, C=SCORE_C)
    return fit_shrunk(_pad_features(reference, X), X, y, C=STEP_C)


def _pad_features(old: LogisticMap, X: Floats) -> LogisticMap:
    """The map with a weight of 0 for the last columns of X (n, d), on which it was not fitted."""
    more = X[:, len(old.coef) :]
    if not more.shape[1]:
        return old
    spread = more.std(axis=0)
    return LogisticMap(
        (*old.coef, *np.zeros(more.shape[1])),
        old.intercept,
        (*old.mean, *more.mean(axis=0)),
        (*old.scale, *np.where(spread > 0, spread, 1.0)),
        (*old.low, *more.min(axis=0)) if old.low else (),
        (*old.high, *more.max(axis=0)) if old.high else (),
    )

"""The maps of single passages, each fitted on the passages of all labelled queries.

The prior uses the first-stage features; it chooses the passages that the cross-encoder scores. The
score also uses the cross-encoder's features. Both are cross-fitted by query group (Stone 1974);
only the cutoff, one number, is chosen on all queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.arrays import group_codes
from calibration.maps import LogisticMap
from calibration.metrics import MIN_GROUPS
from calibration.metrics.intervals import grouped_standard_error
from calibration.selection import grouped_folds
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.ranking import best_first, limit_scored, read, reorder, unscored_features
from rerank.config import Config
from rerank.data.labels import Labelled, Labels, passage_labels
from rerank.errors import InputError, optional
from rerank.evaluation.measure import order_quality
from rerank.progress import progress
from rerank.types import Candidates, Floats, Ranking, Scored

CUTOFFS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)  # shares of the best prior score
CUTOFF_LOSS = 0.005  # share of nDCG@10 that scoring fewer passages may cost
SCORE_C = 1.0  # inverse penalty of a map, which is fitted on thousands of rows
STEP_C = 0.1  # variance of a map's deviation from the pooled one; more would bias the features


def fit_prior(
    candidates: Labelled[Candidates], config: Config, reference: LogisticMap | None = None
) -> tuple[LogisticMap, list[Floats]]:
    """The map of first-stage features to P(a passage is right), by logistic regression.

    With it come the prior scores of each query's candidates, (n,), by maps blind to its group.
    """
    features = [unscored_features(c) for c in candidates.items]
    X, y = _rows(features, candidates)
    scores = _cross_fit(X, y, list(map(len, features)), candidates.groups, config, reference)
    return _fit(X, y, reference), scores


def fit_rankings(
    unordered: Labelled[Ranking], config: Config, reference: LogisticMap | None = None
) -> tuple[LogisticMap, Labelled[Ranking]]:
    """The map of a passage's features to P(it is right), by logistic regression; and the rankings.

    These are in the order of maps that have not seen the query's group. With a `reference` map, the
    maps are shrunk towards that.
    """
    X, y, scored = _with_scores(unordered, config, reference)
    ordered = [reorder(r, rank_by=config.rank_by) for r in scored]
    return _fit(X, y, reference), unordered.with_items(ordered)


def _with_scores(
    unordered: Labelled[Ranking], config: Config, reference: LogisticMap | None
) -> tuple[Floats, Labels, list[Ranking]]:
    """The features and labels of all passages; and the rankings, unordered, with the scores of maps
    that have not seen their group.
    """
    X, y = _rows([r.features for r in unordered.items], unordered)
    counts = list(map(len, unordered.items))
    scores = _cross_fit(X, y, counts, unordered.groups, config, reference)
    return X, y, [replace(r, score=own) for r, own in zip(unordered.items, scores, strict=True)]


def _rows(features: Sequence[Floats], labelled: Labelled[Any]) -> tuple[Floats, Labels]:
    """The features (n, d) and the labels (n,) of all passages."""
    return np.concatenate(features), np.concatenate(passage_labels(labelled))


def _cross_fit(
    X: Floats,
    y: Labels,
    counts: Sequence[int],
    groups: NDArray[np.str_],
    config: Config,
    reference: LogisticMap | None,
) -> list[Floats]:
    """The score of each passage, (n,) a query, by maps fitted on the other folds' queries."""
    folds = grouped_folds(groups, config.folds, random_state=config.seed)
    fold_of, scores = np.repeat(folds, counts), np.zeros(len(X))
    for fold in np.unique(fold_of):
        held = fold_of == fold
        scores[held] = _fit(X[~held], y[~held], reference).predict(X[held])
    return np.split(scores, np.cumsum(counts)[:-1])


def choose_cutoff(
    scored: Labelled[Scored], config: Config, pooled: FittedMaps | None = None
) -> float:
    """The share of the best prior score that a passage needs to be scored; 0 for no cutoff.

    It is the highest of `CUTOFFS` up to which scoring fewer passages costs no more than 0.5% of
    nDCG@10, with one standard error to spare. `scored` had no cutoff. With too few groups it is the
    pooled maps' cutoff, or 0.
    """
    groups = scored.groups[[bool(grades) for grades in scored.grades]]
    chosen = pooled.policy.cutoff if pooled else 0.0
    if len(set(groups)) < MIN_GROUPS:
        return chosen
    reference = pooled.score if pooled else None

    def quality(cutoff: float) -> Floats:
        unordered = read_labelled(scored, cutoff)
        runs = [
            [r.passages[i].doc_id for i in best_first(r, rank_by=config.rank_by)[:10]]
            for r in _with_scores(unordered, config, reference)[2]
        ]
        return order_quality(runs, unordered.grades).ndcg10

    with progress(len(CUTOFFS), "choosing what to score", unit="cutoff") as bar:
        without_cutoff, chosen = quality(0.0), 0.0
        for cutoff in CUTOFFS:
            lost = without_cutoff - quality(cutoff)
            bar.update()
            error = grouped_standard_error(lost, group_codes(groups, len(lost)))
            if lost.mean() + error > CUTOFF_LOSS * without_cutoff.mean():
                break
            chosen = cutoff
    return chosen


def read_labelled(scored: Labelled[Scored], cutoff: float) -> Labelled[Ranking]:
    """The candidates, `read` as if only those above the cutoff had been scored."""
    return scored.with_items([read(limit_scored(s, cutoff)) for s in scored.items])


def limit_labelled(scored: Labelled[Scored], cutoff: float) -> Labelled[Scored]:
    """The candidates as if only those above the cutoff had been scored."""
    return scored.with_items([limit_scored(s, cutoff) for s in scored.items])


def _fit(X: Floats, y: Labels, reference: LogisticMap | None = None) -> LogisticMap:
    with optional():
        from calibration.fitting import fit_logistic, fit_shrunk

    if not len(X):
        raise InputError("no passage was found for any query; are they about this corpus?")
    if (old := reference) is None:
        return fit_logistic(X, y, C=SCORE_C)
    more = X[:, len(old.coef) :]  # the last columns, on which it was not fitted: their weight is 0
    if more.shape[1]:
        spread = more.std(axis=0)
        old = LogisticMap(
            (*old.coef, *np.zeros(more.shape[1])),
            old.intercept,
            (*old.mean, *more.mean(axis=0)),
            (*old.scale, *np.where(spread > 0, spread, 1.0)),
            (*old.low, *more.min(axis=0)) if old.low else (),
            (*old.high, *more.max(axis=0)) if old.high else (),
        )
    return fit_shrunk(old, X, y, C=STEP_C)

"""Nested cross-fitting: measure each fold by a fit on the others.

So a report needs no labels of its own (Stone 1974; Varma and Simon 2006, "Bias in error estimation
when using cross-validation for model selection"): the maps that measure a query were fitted only on
the groups of the other folds. One step is not repeated, the choice of passages to score: for each
query it was made by a prior that had not seen its group. The report is about the procedure. The
model that is kept is fitted by this procedure on all queries. These are more than any fold had, so
its error should be no larger.

The certificate needs no report. It rests on the out-of-fold confidences of all queries fitted on
(see `calibration.thresholds.certify`), and the report never feeds back into it.

The folds share most of the queries that they are fitted on. Intervals treat queries of different
groups as independent, so they are a little too narrow (Bates, Hastie and Tibshirani 2024,
"Cross-validation: what does it estimate and how well does it do it?"): `make promise` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from calibration.selection import grouped_folds, held_out
from rerank.config import Config
from rerank.data.labels import Labelled
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.passage_maps import choose_cutoff
from rerank.fitting.scored_plan import ScoredPlan
from rerank.types import Mode, Scored, main_mode


class FittedFold(NamedTuple):
    """Queries to measure on, scored without a cutoff, and a fit that has not seen their groups."""

    scored: Labelled[Scored]
    fitted: Fitted


def fit_folds(scored: Mapping[Mode, ScoredPlan], config: Config) -> dict[Mode, list[FittedFold]]:
    """For each mode and fold: the queries that the fold measures, and the fit on all others.

    Folds are whole groups, and each query is measured once. The cutoff of a fold is chosen by the
    queries outside of it, in the main mode. Lists with scores have no cutoff.
    """
    main = scored[main_mode(scored)]
    fold_of = grouped_folds(main.to_fit.groups, config.folds, random_state=config.seed)
    folds: dict[Mode, list[FittedFold]] = {mode: [] for mode in scored}
    for held in held_out(fold_of):
        cutoff = main.policy.cutoff
        if not main.kind.stages:
            cutoff = choose_cutoff(main.to_fit.where(~held), config, main.pooled)
        for mode, scored_plan in scored.items():
            policy = replace(scored_plan.policy, cutoff=cutoff)
            fitted = fit(replace(scored_plan.where(~held), policy=policy), config)
            folds[mode].append(FittedFold(scored_plan.to_fit.where(held), fitted))
    return folds

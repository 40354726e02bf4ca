"""A report that costs no label: the whole fit is repeated for every fold, and measured on it.

This is nested cross-fitting (Stone 1974; Varma and Simon 2006, "Bias in error estimation when using
cross-validation for model selection"): the maps that measure a query were fitted only on the groups
of the other folds. One step is not repeated, the choice of passages to score: for each query it was
made by a prior that had not seen its group. The report is about the procedure. The model that is
kept is fitted by this procedure on all queries, a few more than any fold had, and its error is as
large or smaller.

The certificate needs no report. It rests on the out-of-fold confidences of all queries fitted on
(see `calibration.thresholds.certify`), and the report never feeds back into it.

The folds share most of the queries that they are fitted on. Intervals treat queries of different
groups as independent, so they are a little too narrow (Bates, Hastie and Tibshirani 2024,
"Cross-validation: what does it estimate and how well does it do it?"): `make promise` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from calibration.selection import grouped_folds
from rerank.assessment.pipeline import ReadPolicy
from rerank.config import Config
from rerank.data.labels import Labelled
from rerank.fitting.fit import Fitted, fit
from rerank.fitting.passages import choose_cutoff
from rerank.fitting.rankings import PlannedRankings
from rerank.types import Bools, Scored


def held_out(scored: Labelled[Scored], config: Config) -> list[Bools]:
    """Which queries (n,) each fold measures; whole groups, and every query once."""
    fold = grouped_folds(scored.groups, config.folds, random_state=config.seed)
    return [fold == k for k in range(int(fold.max()) + 1)]


def fold_policies(
    ranked: PlannedRankings, held: Sequence[Bools], config: Config
) -> list[ReadPolicy]:
    """The policy of each fold, with the cutoff that the queries outside of it choose."""
    if ranked.lists:  # lists with scores have no cutoff
        return [ranked.policy] * len(held)
    others = [ranked.fit.where(~measured) for measured in held]
    cutoffs = [choose_cutoff(scored, config, ranked.pooled) for scored in others]
    return [replace(ranked.policy, cutoff=cutoff) for cutoff in cutoffs]


def fold_fits(
    ranked: PlannedRankings,
    held: Sequence[Bools],
    policies: Sequence[ReadPolicy],
    config: Config,
) -> list[tuple[Labelled[Scored], Fitted]]:
    """The queries that each fold measures, and the fit on all others."""
    fit_on = partial(
        fit,
        config=config,
        about=ranked.about,
        pooled=ranked.pooled,
        lists=ranked.lists,
        metadata=ranked.metadata,
    )
    scored = ranked.fit
    return [
        (scored.where(measured), fit_on(scored.where(~measured), policy))
        for measured, policy in zip(held, policies, strict=True)
    ]

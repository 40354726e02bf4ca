"""Fit the maps on labelled rankings, without files or tracking.

Everything is cross-fitted by query group (Stone 1974): a query's features and its out-of-fold
confidence come from maps that were not fitted on its group. As in stacking (Wolpert 1992), not
every step is blind: the confidence of one fold is fitted on features of the other folds, whose
relevance maps have seen this fold's labels. No effect of this was measured; it is not ruled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibration.effective_sample_size import effective_n
from calibration.maps import LogisticMap
from calibration.monitoring.drift import Sketch, sketch
from calibration.segments import Segments, cross_fit_segments, fit_segments
from calibration.selection import choose, enough_rows
from calibration.thresholds import ABOUT, certify
from rerank.assessment.features import features_of
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.metadata_features import MetadataFeature
from rerank.assessment.pipeline import ReadPolicy
from rerank.assessment.predictions import segments_of
from rerank.assessment.ranking_features import ranking_features
from rerank.assessment.relevance import fit_hazards
from rerank.config import Config
from rerank.data.labels import Labelled, Labels, hits
from rerank.errors import optional
from rerank.evaluation.baselines import best_logit
from rerank.fitting.context_certificates import certify_context
from rerank.fitting.label_checks import require_both_kinds
from rerank.fitting.passages import cross_fit_rankings, fit_score, limit_labelled
from rerank.fitting.unanswerable import is_copy
from rerank.types import Floats, ListKind, Ranking, Scored

AUTO = ("logistic", "beta", "isotonic")  # what `auto` chooses from, simple to complex
AROUND = {  # whether there are pooled maps -> sentence of the report
    True: "The maps are shrunk towards those of other labelled sets.",
    False: "No maps of other sets are known for these models: all is learned from these labels.",
}


@dataclass(frozen=True, slots=True)
class FitContext:
    """What a fit must know of the queries and features, besides the labels.

    about: the questions that a certificate is about. pooled: maps that the fitted ones are shrunk
    towards: with few labels they stay close to them, with many they do not. lists: the kind of the
    lists, if they came with scores. metadata: the last features, of the passages' metadata.
    """

    about: str = ABOUT
    pooled: FittedMaps | None = None
    lists: ListKind | None = None
    metadata: tuple[MetadataFeature, ...] = ()


@dataclass(frozen=True, slots=True)
class Fitted:
    """The maps, the calibrator that was chosen and why, and the fitted baseline."""

    maps: FittedMaps
    calibrator: str
    reason: str  # one sentence
    temperature: LogisticMap  # the best logit / a fitted number -> P(the top one is right)
    sketch: Sketch  # of the features, without copies, for the drift alarm
    effective: float  # effective number of independent queries fitted on
    # of the queries fitted on, in orders by maps that had not seen them: (n, d), and (n,)
    features: Floats = field(compare=False, repr=False)
    right: Labels = field(compare=False, repr=False)
    groups: Sequence[str] = field(compare=False, repr=False)  # (n,)

    def scaled_logit(self, ranking: Ranking) -> float:
        """The baseline's confidence in a ranking, in [0, 1]."""
        return float(self.temperature.predict([best_logit(ranking)])[0])


def fit(
    scored: Labelled[Scored],
    policy: ReadPolicy,
    config: Config,
    context: FitContext = FitContext(),
    *,
    to_keep: bool = False,
) -> Fitted:
    """Fit score, confidence and hazards on labelled candidates, cross-fitted by query group.

    A query's features are computed on an order by a score map that has not seen its group, and the
    certificate rests on confidences of such maps. The maps that are kept are refitted on
    everything. `scored` had no cutoff, which the baseline needs; `policy` says how much of it the
    model will score. The certificates of the first passages are made only for a model `to_keep`.
    """
    with optional():
        from calibration.fitting import cross_fit_two_stage, fit_two_stage
        from calibration.score_fitting import fit_temperature

    about, pooled = context.about, context.pooled
    groups, limited = scored.groups, limit_labelled(scored, policy.cutoff)
    of_passages = pooled.score if pooled else None
    of_rankings = pooled.confidence.as_logistic() if pooled else None
    of_others = (pooled.hazard, pooled.another) if pooled else (None, None)
    ordered = cross_fit_rankings(limited, config, of_passages)
    table = features_of(context.lists).ranking
    features, right = ranking_features(ordered.items, table), hits(ordered)[:, 0]
    considered = AUTO if config.calibrator == "auto" else (config.calibrator,)
    n_effective = effective_n(right - right.mean(), groups)
    names = [
        name for name in considered if considered is not AUTO or enough_rows(name, n_effective)
    ]
    out_of_fold = cross_fit_two_stage(
        names,
        features,
        right,
        groups,
        folds=config.folds,
        random_state=config.seed,
        around=of_rankings,
    )
    left_out = [name for name in considered if name not in names]
    choice = choose(out_of_fold, right, groups, left_out=left_out, worth=n_effective)
    confidence, _, _ = fit_two_stage(
        features,
        right,
        groups,
        then=choice.name,
        folds=config.folds,
        random_state=config.seed,
        around=of_rankings,
    )
    held_out, segments = out_of_fold[choice.name], Segments()
    if config.segment_by:
        named = segments_of(ordered.items, config.segment_by)
        segments = fit_segments(held_out, right, named, groups)
        held_out = cross_fit_segments(
            held_out, right, named, groups, folds=config.folds, random_state=config.seed
        )
    certificate = certify(
        right,
        held_out,
        groups=groups,
        target=config.thresholds.medium,
        about=about,
    )
    answered = [bool(grades) for grades in scored.grades]
    sufficiency, stopping_threshold = None, None
    if to_keep:
        sufficiency, stopping_threshold = certify_context(
            ordered, held_out, config, of_others, most=confidence.most, about=about
        )
        sufficiency = require_both_kinds(sufficiency, answered)
    original = np.array([not is_copy(s.query) for s in scored.items], dtype=np.bool_)
    return Fitted(
        FittedMaps(
            policy,
            fit_score(limited, of_passages),
            confidence,
            *fit_hazards(ordered, held_out, of_others),
            require_both_kinds(certificate, answered),
            segments,
            sufficiency,
            stopping_threshold,
            lists=context.lists,
            metadata=context.metadata,
        ),
        choice.name,
        f"{choice.reason if considered is AUTO else 'As asked for.'} {AROUND[pooled is not None]}",
        fit_temperature(np.array([_best_logit(s) for s in scored.items]), right),
        sketch(features[original], list(table), groups[original]),
        effective_n(right - held_out, groups),
        features,
        right,
        groups.tolist(),
    )


def _best_logit(scored: Scored) -> float:
    return float(scored.logits.max()) if len(scored.logits) else 0.0

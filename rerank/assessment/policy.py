"""From probabilities to decisions: level, verdict, accepted, certified, and reasons in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calibration.maps import LogisticMap
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.predictions import Predictions
from rerank.assessment.ranking_features import RANKING_FEATURES, Feature, meaning
from rerank.config import Config, Thresholds
from rerank.types import Assessment, Bools, Floats, Mode

ABOVE_LOW = ("HIGH", "MEDIUM")
UNLIKE = "not certified: the question is unlike those that were labelled"
OUTLYING_FEATURES = 3  # outside the range fitted on: the question is unlike the labelled ones
LEAST_LABELS = 20  # from which maps shrunk towards pooled ones can be trusted
LABEL_FIRST = (  # what to do if the confidence is not calibrated
    f"label at least {LEAST_LABELS} queries of this corpus, some of them unanswerable, and run "
    "`rerank calibrate SET --out MODEL`"
)
REASONS = 3  # features named with a confidence
SLIGHT = 0.05  # features that move the log-odds by less are not shown


def level(confidence: float, t: Thresholds) -> str:
    """HIGH, MEDIUM, LOW or VERY_LOW; a band begins at its threshold."""
    bands = (("HIGH", t.high), ("MEDIUM", t.medium), ("LOW", t.low))
    return next((name for name, start in bands if confidence >= start), "VERY_LOW")


def verdict(sufficiency: float, t: Thresholds) -> str:
    """SUFFICIENT, PARTIAL or INSUFFICIENT: whether the first passages hold an answer."""
    bands = (("SUFFICIENT", t.sufficient), ("PARTIAL", t.partial))
    return next((name for name, start in bands if sufficiency >= start), "INSUFFICIENT")


def accepted(confidence: float, t: Thresholds) -> bool:
    """Whether the confidence reaches the advisory threshold; else the answer is advisory only."""
    return confidence >= t.medium


def unlike_fitted(features: Floats, fitted: LogisticMap) -> Bools:
    """Whether `OUTLYING_FEATURES` or more of a question's features lie outside the range fitted on.

    `features` is (n, d); the result is (n,). A certificate is about questions like the labelled
    ones, so such a question is never certified. It looks at no label, so it does not favour right
    answers.
    """
    if not fitted.low:
        return np.zeros(len(features), dtype=np.bool_)
    low, high = np.array(fitted.low), np.array(fitted.high)
    outside: Bools = ((features < low) | (features > high)).sum(axis=1) >= OUTLYING_FEATURES
    return outside


def reasons(
    names: Sequence[str],
    values: Floats,
    usual: Sequence[float],
    contributions: Floats,
    table: Mapping[str, Feature] = RANKING_FEATURES,
) -> tuple[str, ...]:
    """The features of `table` that moved the log-odds most, strongest first, as sentences.

    `contributions[i]` is what feature `names[i]`, of value `values[i]`, adds to the log-odds of a
    query whose features are all `usual`: see `TwoStageMap.contributions`.
    """
    order = sorted(range(len(names)), key=lambda i: -abs(contributions[i]))[:REASONS]
    return tuple(
        f"{'for' if contributions[i] > 0 else 'against'}: {meaning(names[i], table).lower()} "
        f"{values[i]:.2f}, usually {usual[i]:.2f} ({contributions[i]:+.2f} log-odds)"
        for i in order
        if abs(contributions[i]) >= SLIGHT
    )


def decide(
    predicted: Predictions, maps: FittedMaps, config: Config, mode: Mode
) -> list[Assessment]:
    """One assessment per ranking, by the maps of a mode and the thresholds of the configuration."""
    if not predicted.rankings:
        return []
    t, k = config.thresholds, config.sufficiency_k
    moves = maps.confidence.contributions(predicted.features)
    table, first = maps.features.ranking, maps.confidence.first
    unlike = unlike_fitted(predicted.features, first)
    names = list(table)
    assessments = []
    for i, ranking in enumerate(predicted.rankings):
        confidence = float(predicted.confidence[i])
        sufficiency = float(predicted.sufficiency[i, k - 1])
        why = reasons(names, predicted.features[i], first.mean, moves[i], table)
        is_accepted, is_unlike = accepted(confidence, t), bool(unlike[i])
        if is_accepted and maps.certificate.refused:
            why = (f"not certified: {maps.certificate.refused}", *why)
        elif is_accepted and is_unlike and maps.certificate.promises(confidence):
            why = (UNLIKE, *why)
        assessments.append(
            Assessment(
                ranking=ranking,
                relevance=predicted.relevance[i],
                confidence=confidence,
                sufficiency=sufficiency,
                sufficiency_at=tuple(predicted.sufficiency[i].tolist()),
                level=level(confidence, t),
                verdict=verdict(sufficiency, t),
                accepted=is_accepted,
                certified=is_accepted and not is_unlike and maps.certificate.promises(confidence),
                context_certified=sufficiency >= t.sufficient
                and not is_unlike
                and maps.context is not None
                and maps.context.promises(sufficiency),
                reasons=why if len(ranking) else ("against: no passage was found",),
                features=predicted.features[i],
                mode=mode,
            )
        )
    return assessments if maps.calibrated else list(map(as_uncalibrated, assessments))


def as_uncalibrated(assessment: Assessment) -> Assessment:
    """The assessment without labels of this corpus: nothing is accepted or certified."""
    reason = f"not calibrated: {LABEL_FIRST}"
    return replace(
        assessment,
        calibrated=False,
        level="LOW" if assessment.level in ABOVE_LOW else assessment.level,
        verdict="PARTIAL" if assessment.verdict == "SUFFICIENT" else assessment.verdict,
        accepted=False,
        certified=False,
        context_certified=False,
        reasons=(reason, *(other for other in assessment.reasons if other != reason)),
    )

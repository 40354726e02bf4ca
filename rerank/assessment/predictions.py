"""From scored candidates to probabilities: order, features, confidence, relevance, in turn. Then to
decisions, which change none of them: level, verdict, accepted, certified, and reasons in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.ranking import rank, with_empty_last
from rerank.assessment.ranking_features import RANKING_FEATURES, Feature, meaning, ranking_features
from rerank.assessment.relevance import DEPTH, relevance_and_sufficiency
from rerank.config import Config, Thresholds, two_digits
from rerank.types import (
    INSTRUCTION,
    Assessment,
    Bools,
    Floats,
    Mode,
    Ranking,
    Scored,
    metadata_name,
)

UNLIKE = "not certified: the question is unlike those that were labelled"
FILTERED = "not certified: the question has {}, and none that was labelled had the like"
OUTLYING_FEATURES = 3  # outside the range fitted on: the question is unlike the labelled ones
CALIBRATED_FROM = 20  # from which maps shrunk towards pooled ones can be trusted
LABEL_FIRST = (  # what to do if the confidence is not calibrated
    f"label at least {CALIBRATED_FROM} queries of this corpus, some of them unanswerable, and run "
    "`rerank calibrate SET --out MODEL`"
)
SHIFTED = (  # if a model behind an address is no longer that of the fit
    "not calibrated: the {} behind an address gives other numbers than at the fit, or none; "
    "`rerank watch probe MODEL` says how far they are"
)
FAILED = "not calibrated: the reranker failed, so this is the first stage's order and relevance"
SECOND_FAILED = "not calibrated: the second model failed, so this is what the first one answers"
SECOND_CHANGED = "not calibrated: this is what the first model answers, as the second one is {}"
UNFITTED = (  # an instruction gives other scores
    "not calibrated: no labelled query has this instruction; label some that have it, and calibrate"
)
REASONS = 3  # features named with a confidence
SLIGHT = 0.05  # features that move the log-odds by less are not shown


@dataclass(frozen=True, slots=True)
class Predictions:
    """The rankings of n queries, and their probabilities by the maps, in [0, 1]."""

    rankings: list[Ranking]
    features: Floats  # (n, len(maps.features.ranking))
    confidence: Floats  # (n,) P(the top passage is right)
    relevance: list[Floats]  # of each ranking: P(each passage is right); never rises
    sufficiency: Floats  # (n, 10) P(one of the first k is right), for k = 1 to 10; never falls in k


def predict(scored: Sequence[Scored], maps: FittedMaps, config: Config) -> Predictions:
    """Rank the candidates by the maps, and compute the probabilities of each ranking and passage.

    Where the cross-encoder failed they are those of the first stage alone. For a query without
    candidates every probability is 0.
    """
    rankings = [
        rank(s, maps.policy.prior) if s.failed else rank(s, maps.score, rank_by=config.rank_by)
        for s in scored
    ]
    features = ranking_features(rankings, maps.features.ranking)
    if not rankings:
        return Predictions([], features, np.zeros(0), [], np.zeros((0, DEPTH)))
    confidence = maps.confidence.predict(features)
    if maps.segments.updates:
        confidence = maps.segments.apply(confidence, segments_of(rankings, config.segment_by))
    firsts = [r.score[0] if len(r) else 0.0 for r in rankings]  # of those that failed
    confidence = np.where([s.failed for s in scored], firsts, confidence)
    confidence = np.where(have_passages(rankings), confidence, 0.0)
    probabilities = [
        relevance_and_sufficiency(
            r, c, maps.hazard, maps.hazard_after_hit, maps.confidence.max_probability
        )
        for r, c in zip(rankings, confidence.tolist(), strict=True)
    ]
    relevance, sufficiency = zip(*probabilities, strict=True)
    return Predictions(rankings, features, confidence, list(relevance), np.array(sufficiency))


def have_passages(rankings: Sequence[Ranking]) -> Bools:
    """Whether each ranking has a passage, (n,)."""
    return np.array([len(r) > 0 for r in rankings], dtype=np.bool_)


def segments_of(rankings: Sequence[Ranking], segment_by: str) -> list[str]:
    """The segment of each query: what its metadata says under `segment_by`, or ""."""
    return [metadata_name(r.query.metadata, segment_by) for r in rankings]


def unlike_labelled(features: Floats, maps: FittedMaps) -> Bools:
    """Whether `OUTLYING_FEATURES` or more of a question's features (n, d) are out of range, (n,).

    The range covers the labelled questions, and what the confidence map does not clip.
    """
    first = maps.confidence.first
    if not first.low:
        return np.zeros(len(features), dtype=np.bool_)
    low, high = np.array(first.low), np.array(first.high)
    if maps.feature_range:
        low = np.minimum(low, maps.feature_range[0])
        high = np.maximum(high, maps.feature_range[1])
    outside: Bools = ((features < low) | (features > high)).sum(axis=1) >= OUTLYING_FEATURES
    return outside


def filtered_otherwise(rankings: Sequence[Ranking], maps: FittedMaps) -> Bools:
    """Whether no labelled question had a filter on the same keys, (n,): none is a filter, too."""
    return np.array([r.query.filtered_by not in maps.filters for r in rankings], dtype=np.bool_)


def certified(
    predicted: Predictions, maps: FittedMaps, t: Thresholds, uncovered: Bools | None = None
) -> Bools:
    """Whether each answer is certified, (n,).

    It is if it is accepted, its confidence reaches the certified threshold, and the question is not
    `uncovered` (n,): `unlike_labelled` or `filtered_otherwise`, which is found out if not given.
    """
    if uncovered is None:
        uncovered = unlike_labelled(predicted.features, maps)
        uncovered |= filtered_otherwise(predicted.rankings, maps)
    reached = [t.accepts(p) and maps.certificate.promises(p) for p in predicted.confidence.tolist()]
    return np.array(reached, dtype=np.bool_) & ~uncovered


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
    sentences = []
    for i in sorted(range(len(names)), key=lambda i: -abs(contributions[i]))[:REASONS]:
        if abs(contributions[i]) >= SLIGHT:
            says = meaning(names[i], table)
            if not says[1:2].isupper():  # else it begins with a name such as BM25
                says = says[:1].lower() + says[1:]
            sentences.append(
                f"{'for' if contributions[i] > 0 else 'against'}: {says} {values[i]:.2f}, usually "
                f"{usual[i]:.2f} ({contributions[i]:+.2f} log-odds)"
            )
    return tuple(sentences)


def to_assessments(
    predicted: Predictions, maps: FittedMaps, config: Config, modes: Sequence[Mode]
) -> list[Assessment]:
    """One assessment per ranking, by the maps of a mode and the thresholds of the configuration.

    `modes` (n,) are those of the queries as they came.
    """
    if not predicted.rankings:
        return []
    t, k, by = config.thresholds, config.sufficiency_k, config.segment_by
    contributions = maps.confidence.contributions(predicted.features)
    table, first = maps.features.ranking, maps.confidence.first
    unlike = unlike_labelled(predicted.features, maps)
    otherwise = filtered_otherwise(predicted.rankings, maps)
    is_certified = certified(predicted, maps, t, unlike | otherwise)
    names = list(table)
    usual_confidence = float(maps.confidence.predict(np.array([first.mean]))[0])
    start = f"start: a query with usual evidence has {usual_confidence:.2f}"
    assessments = []
    for i, ranking in enumerate(predicted.rankings):
        confidence = float(predicted.confidence[i])
        sufficiency = float(predicted.sufficiency[i, k - 1])
        added = reasons(names, predicted.features[i], first.mean, contributions[i], table)
        why = (start, *added)
        is_accepted, is_unlike = t.accepts(confidence), bool(unlike[i])
        if is_accepted and maps.certificate.refused:
            why = (f"not certified: {maps.certificate.refused}", *why)
        elif is_accepted and is_unlike and maps.certificate.promises(confidence):
            why = (UNLIKE, *why)
        if otherwise[i] and maps.calibrated:
            keys = ranking.query.filtered_by
            had = f"a filter on {' and '.join(keys)}" if keys else "no filter"
            why = (FILTERED.format(had), *why)
        segment = metadata_name(ranking.query.metadata, by)
        if by and segment not in maps.segments.updates and (by != INSTRUCTION or not segment):
            unknown = f"nothing was fitted for {by} {segment!r:.80}"
            unknown = unknown if segment else f"the query names no {by}"
            why = (f"{unknown}, so the confidence is that of all queries", *why)
        every, relevance = with_empty_last(ranking), predicted.relevance[i]
        nothing = "no passage has any text" if len(every) else "no passage was found"
        assessments.append(
            Assessment(
                ranking=every,
                relevance=np.append(relevance, np.zeros(len(every) - len(ranking))),
                confidence=confidence,
                sufficiency_at=tuple(predicted.sufficiency[i].tolist()),
                sufficiency_k=k,
                thresholds=t,
                certified=bool(is_certified[i]),
                context_certified=sufficiency >= t.sufficient
                and not (is_unlike or otherwise[i])
                and maps.context_certificate is not None
                and maps.context_certificate.promises(sufficiency),
                reasons=why if len(ranking) else (f"against: {nothing}",),
                features=predicted.features[i],
                mode=modes[i],
            )
        )
        if by == INSTRUCTION and segment and segment not in maps.segments.updates:
            assessments[-1] = as_uncalibrated(assessments[-1], UNFITTED)
    return assessments if maps.calibrated else list(map(as_uncalibrated, assessments))


def as_uncalibrated(
    assessment: Assessment, reason: str = f"not calibrated: {LABEL_FIRST}"
) -> Assessment:
    """The assessment of a model without labels of this corpus: not accepted, not certified."""
    return replace(
        assessment,
        calibrated=False,
        certified=False,
        context_certified=False,
        reasons=(reason, *(other for other in assessment.reasons if other != reason)),
    )


def joined(first: Assessment, second: Assessment | None) -> Assessment:
    """What a model of two answers: the second one, if it was asked; one certificate is of both."""
    if second is None:
        return replace(first, answered_by="first")
    if not second.calibrated:
        failed = second.first_stage
        uncalibrated = as_uncalibrated(
            first, SECOND_FAILED if failed else SECOND_CHANGED.format(second.reasons[0])
        )
        return replace(uncalibrated, first_stage=failed, answered_by="first")
    why = (
        f"the second model was asked: the confidence of the first is {two_digits(first.confidence)}"
    )
    return replace(second, answered_by="second", asked_before=first, reasons=(why, *second.reasons))

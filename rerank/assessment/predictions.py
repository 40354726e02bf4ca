"""From scored candidates to probabilities: order, features, confidence, relevance, in turn.

It decides nothing: see `rerank.assessment.decisions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.ranking import rank
from rerank.assessment.ranking_features import ranking_features
from rerank.assessment.relevance import DEPTH, relevance_and_sufficiency
from rerank.config import Config
from rerank.types import Bools, Floats, Ranking, Scored, metadata_name


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

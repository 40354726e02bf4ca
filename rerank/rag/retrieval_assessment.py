"""How good a ranking is, by signal: what each one means, and how much it moved the confidence.

Each feature of the confidence belongs to one signal, so the contributions of all signals add up
exactly to the log-odds. Recommendations follow from the measured values. It scores nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.arrays import log_odds, sigmoid
from rerank.assessment.decisions import LABEL_FIRST, unlike_labelled
from rerank.assessment.features import Features
from rerank.assessment.fitted_maps import FittedMaps
from rerank.config import two_digits
from rerank.data.equal_passages import distinct
from rerank.rag.signals import CLOSE, SIGNALS, TOP, agreeing, signal_of, signals_of_lists
from rerank.types import Assessment, Floats

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker

FLOOR = 0.2  # relevance below which a passage is not worth using
ADVISORY = 0.7  # confidence below which an answer is flagged

LEVEL_WORDS = {
    "HIGH": "strong retrieval confidence",
    "MEDIUM": "good retrieval confidence, verify",
    "LOW": "weak retrieval confidence, advisory only",
    "VERY_LOW": "no reliable result, review needed",
}


@dataclass(frozen=True, slots=True)
class Signal:
    """One property of a ranking."""

    name: str
    value: float
    meaning: str  # what the value means here
    log_odds: float  # how much it moved the confidence, relative to a usual query fitted on
    moved: float  # the same in probability: the confidence minus what it would be without

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "value": self.value,
            "meaning": self.meaning,
            "log_odds": self.log_odds,
            "moved": self.moved,
        }


@dataclass(frozen=True, slots=True)
class RetrievalAssessment:
    """What a ranking's confidence is based on, and what to do if it is low."""

    confidence: float
    level: str
    interpretation: str
    should_flag_for_review: bool
    signals: tuple[Signal, ...]
    recommendations: tuple[str, ...]
    calibrated: bool = True
    starts: tuple[float, ...] = ()  # confidences at which a level begins, or the flag ends

    def headline(self) -> str:
        """One line, such as `RAG Confidence: HIGH - strong retrieval confidence (0.92)`."""
        shown = two_digits(self.confidence, self.starts)
        number = f"{shown}{'' if self.calibrated else ', not calibrated'}"
        return f"RAG Confidence: {self.level} - {self.interpretation} ({number})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "headline": self.headline(),
            "confidence": self.confidence,
            "level": self.level,
            "interpretation": self.interpretation,
            "calibrated": self.calibrated,
            "should_flag_for_review": self.should_flag_for_review,
            "signals": [signal.to_dict() for signal in self.signals],
            "recommendations": list(self.recommendations),
        }

    def text(self) -> str:
        """All of it, one item per line."""
        lines = [self.headline()]
        if self.should_flag_for_review:
            why = "below the advisory threshold" if self.calibrated else "not calibrated"
            lines.append(f"Flag for review: the confidence is {why}.")
        lines += [
            f"  {s.name:<19}{s.value:>7.2f}  {s.log_odds:>+6.2f} log-odds ({s.moved:+.2f})  "
            f"{s.meaning}"
            for s in self.signals
        ]
        lines += [f"  Recommended: {sentence}" for sentence in self.recommendations]
        return "\n".join(lines)


def assess_retrieval(
    assessment: Assessment, maps: FittedMaps, *, threshold: float = ADVISORY
) -> RetrievalAssessment:
    """The signals of an assessment made with `maps`, and recommendations.

    `maps` are those of the query's mode: `model.maps[model.mode_of(query)]`. Below `threshold`, or
    if the model is not calibrated, the answer is flagged for review.
    """
    first, _ = distinct(assessment.ranking.passages)  # equal passages count as one
    ranking, relevance = assessment.ranking.take(first), assessment.relevance[first]
    assessment = replace(assessment, ranking=ranking, relevance=relevance)
    confidence = assessment.confidence
    flagged = confidence < threshold or not assessment.calibrated
    words = LEVEL_WORDS.get(assessment.level, "retrieval confidence")
    if not len(ranking):
        nothing = "No passage was found: add documents, or ask in other words."
        return RetrievalAssessment(
            confidence=confidence,
            level=assessment.level,
            interpretation=words,
            should_flag_for_review=True,
            signals=(),
            recommendations=(nothing,),
            calibrated=assessment.calibrated,
            starts=(threshold,),
        )
    table = signals_of_lists(maps.list_kind) if maps.list_kind else SIGNALS
    of_features = maps.confidence.contributions(assessment.features[None, :])[0]
    contributions = _by_signal(maps.features, of_features)
    signals = tuple(
        Signal(
            name,
            value := measure(assessment),
            agreeing(name, value, contributions.get(name, 0.0), table),
            contributions.get(name, 0.0),
            _points(confidence, contributions.get(name, 0.0)),
        )
        for name, (measure, _) in table.items()
    )
    advice = _recommendations(assessment, maps, signals) if flagged else ()
    return RetrievalAssessment(
        confidence=confidence,
        level=assessment.level,
        interpretation=words,
        should_flag_for_review=flagged,
        signals=signals,
        recommendations=advice,
        calibrated=assessment.calibrated,
        starts=(threshold,),
    )


def assess_with(model: CalibratedReranker, assessment: Assessment) -> RetrievalAssessment:
    """As `assess_retrieval`, with the maps and the advisory threshold of the model."""
    maps = model.maps[model.mode_of(assessment.ranking.query)]
    t = model.pipeline.config.thresholds
    found = assess_retrieval(assessment, maps, threshold=t.advisory)
    return replace(found, starts=(t.low, t.medium, t.high))


def _by_signal(features: Features, contributions: Floats) -> dict[str, float]:
    """What each signal adds to the log-odds: the sum over its features."""
    group_of = {name: group for group, names in features.groups.items() for name in names}
    found: dict[str, float] = {}
    for name, added in zip(features.ranking, contributions.tolist(), strict=True):
        signal = signal_of(name, group_of[name])
        found[signal] = found.get(signal, 0.0) + added
    return found


def _points(confidence: float, contribution: float) -> float:
    """The confidence minus what it would be without a contribution (log-odds)."""
    without = sigmoid(log_odds(np.array([confidence])) - contribution)
    return float(confidence - without[0])


# --- recommendations --------------------------------------------------------------------------


def _recommendations(
    assessment: Assessment, maps: FittedMaps, signals: tuple[Signal, ...]
) -> tuple[str, ...]:
    """What to do, from what was measured; the strongest cause comes first."""
    by_name = {s.name: s for s in signals}
    ranking, relevance = assessment.ranking, assessment.relevance
    found: list[str] = []
    if not assessment.calibrated:
        found.append(f"The confidence is not calibrated: {LABEL_FIRST}.")
    if relevance.max() < FLOOR:
        found.append(
            f"No passage reaches a relevance of {FLOOR}: the documents may not hold the answer."
        )
    if by_name["stage_agreement"].value < 0.2:
        found.append("The search stages disagree: use exact terms, or expand the query.")
    second = relevance[1] if len(ranking) > 1 else 0.0
    if second >= CLOSE * relevance[0]:
        found.append("No clear winner: ask which one is meant, or fetch more passages.")
    if by_name["document_diversity"].value >= 0.8 and len(ranking) >= TOP:
        found.append("The first passages come from many documents: name the document or topic.")
    if ranking.truncated[:TOP].any():
        cut = int(ranking.truncated[:TOP].sum())
        found.append(
            f"{cut} of the first passages are longer than the model's max_length, so only a part "
            "of each was read: split documents into shorter passages."
        )
    if unlike_labelled(assessment.features[np.newaxis], maps).any():
        found.append(
            "The model was never fitted on a question of this kind: label some, and recalibrate."
        )
    return tuple(found)

"""How good a ranking is, by signal: what each one says, and how much it moved the confidence.

Each feature of the confidence belongs to one signal, so the moves of all signals add up exactly to
the log-odds. Recommendations follow from the measured values. It scores nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from calibration.arrays import log_odds, sigmoid
from calibration.maps import TwoStageMap
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.ranking_features import GROUPS, RANKING_FEATURES
from rerank.errors import InputError
from rerank.rag.sources import place_of
from rerank.types import Assessment, Floats, Mode, metadata_name

TOP = 5  # passages that "the top" means below
FLOOR = 0.2  # relevance below which a passage is not worth using
ADVISORY = 0.7  # confidence below which an answer is flagged
CLOSE = 0.5  # the second passage is close if its relevance is this share of the first one's
FROM_GOOD_TO_BAD = {"top_score", "gap", "stage_agreement", "query_coverage"}  # bands of signals
LEAST_MOVE = 0.005  # smaller log-odds are shown as 0
STRANGE = 3  # a question with so many features outside the range fitted on is unusual

LEVEL_WORDS = {
    "HIGH": "strong retrieval confidence",
    "MEDIUM": "good retrieval confidence, verify",
    "LOW": "weak retrieval confidence, advisory only",
    "VERY_LOW": "no reliable result, review needed",
}
OF_GROUP = {  # the signal of a feature, by its group, if it is not named below
    "logits": "top_score",
    "score": "top_score",
    "margins": "gap",
    "first stage": "spread",
    "agreement": "stage_agreement",
    "coverage": "query_coverage",
}
OF_FEATURE = {
    "score_margin": "gap",
    "score_share": "gap",
    "cosine_margin": "gap",
    "bm25_margin": "gap",
    "top_cosine": "top_score",
    "logit_spread": "spread",
    "logit_consensus": "consensus",
    "passages_scored": "consensus",
    "reranker_impact": "reranker_impact",
    "diversity": "document_diversity",
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

    def headline(self) -> str:
        """One line, such as `RAG Confidence: HIGH - strong retrieval confidence (0.92)`."""
        return f"RAG Confidence: {self.level} - {self.interpretation} ({self.confidence:.2f})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "headline": self.headline(),
            "confidence": self.confidence,
            "level": self.level,
            "interpretation": self.interpretation,
            "should_flag_for_review": self.should_flag_for_review,
            "signals": [signal.to_dict() for signal in self.signals],
            "recommendations": list(self.recommendations),
        }

    def text(self) -> str:
        """All of it, one item per line."""
        lines = [self.headline()]
        if self.should_flag_for_review:
            lines.append("Flag for review: the confidence is below the advisory threshold.")
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

    `maps` are those of the assessment's mode: `model.maps[query.mode]`. Below `threshold` the
    answer is flagged for review.

    Raises:
        InputError: the scores came with the passages; there are signals for our own stages only.
    """
    if maps.lists:
        raise InputError(
            "the signals are of our own stages, and these passages came with scores of "
            f"{', '.join(maps.lists.stages)}; the assessment's `reasons` say what moved it"
        )
    ranking, confidence = assessment.ranking, assessment.confidence
    flagged = confidence < threshold
    words = LEVEL_WORDS.get(assessment.level, "retrieval confidence")
    if not len(ranking):
        nothing = "No passage was found: add documents, or ask in other words."
        return RetrievalAssessment(confidence, assessment.level, words, True, (), (nothing,))
    moves = _moves(maps.confidence.contributions(assessment.features[None, :])[0])
    signals = tuple(
        Signal(
            name,
            value := measure(assessment),
            agreeing(name, value, moves.get(name, 0.0)),
            moves.get(name, 0.0),
            _points(confidence, moves.get(name, 0.0)),
        )
        for name, (measure, _) in SIGNALS.items()
    )
    advice = _recommendations(assessment, maps, assessment.features, signals) if flagged else ()
    return RetrievalAssessment(confidence, assessment.level, words, flagged, signals, advice)


class Fitted(Protocol):
    """The parts of a loaded model that are needed here."""

    pipeline: Pipeline

    @property
    def maps(self) -> Mapping[Mode, FittedMaps]:
        """The maps of each mode."""


def assess_with(model: Fitted, assessment: Assessment) -> RetrievalAssessment:
    """As `assess_retrieval`, with the maps and the advisory threshold of the model."""
    maps = model.maps[assessment.ranking.query.mode]
    threshold = model.pipeline.config.thresholds.medium
    return assess_retrieval(assessment, maps, threshold=threshold)


def _moves(contributions: Floats) -> dict[str, float]:
    """What each signal adds to the log-odds: the sum over its features."""
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    found: dict[str, float] = {}
    for name, move in zip(RANKING_FEATURES, contributions.tolist(), strict=True):
        signal = OF_FEATURE.get(name) or OF_GROUP.get(group_of.get(name, ""), "query_coverage")
        found[signal] = found.get(signal, 0.0) + move
    return found


def _points(confidence: float, move: float) -> float:
    """The confidence minus what it would be without `move` (log-odds)."""
    without = sigmoid(log_odds(np.array([confidence])) - move)
    return float(confidence - without[0])


# --- the signals ------------------------------------------------------------------------------

Measure = Callable[[Assessment], float]
Meaning = Callable[[float], str]


def _banded(*bands: tuple[float, str]) -> Meaning:
    """The words of the first band whose start the value reaches; the starts descend."""
    return lambda value: next((words for start, words in bands if value >= start), bands[-1][1])


def _top_score(a: Assessment) -> float:
    return float(a.relevance[0])


def _gap(a: Assessment) -> float:
    """The lead of the first passage, in probability."""
    return float(a.relevance[0] - a.relevance[1]) if len(a.relevance) > 1 else _top_score(a)


def _spread(a: Assessment) -> float:
    return float(a.relevance[:TOP].std())


def _consensus(a: Assessment) -> float:
    return float((a.relevance[:TOP] >= CLOSE * a.relevance[0]).mean())


def _documents(a: Assessment) -> float:
    passages = a.ranking.passages[:TOP]
    return len({place_of(p).document for p in passages}) / len(passages)


def _graph_support(a: Assessment) -> float:
    best = a.ranking.passages[0].metadata
    named = [metadata_name(best, key) for key in ("graph_support", "graph_boost")]
    try:
        return float(next(filter(None, named), "0"))
    except ValueError:
        return 0.0


def _feature(name: str) -> Measure:
    return lambda assessment: RANKING_FEATURES[name](assessment.ranking)


SIGNALS: Mapping[str, tuple[Measure, Meaning]] = {
    "top_score": (
        _top_score,
        _banded(
            (0.7, "the best passage is probably right"),
            (0.4, "the best passage may be right"),
            (0.0, "the best passage is probably wrong"),
        ),
    ),
    "gap": (
        _gap,
        _banded(
            (0.3, "a clear winner"),
            (0.1, "a slight lead over the second passage"),
            (-1.0, "no clear winner"),
        ),
    ),
    "spread": (
        _spread,
        _banded((0.15, "the first passages differ in relevance"), (0.0, "all are much alike")),
    ),
    "consensus": (
        _consensus,
        _banded((0.6, "several passages are as good as the best"), (0.0, "the best stands alone")),
    ),
    "stage_agreement": (
        _feature("stage_overlap"),
        _banded(
            (0.4, "word search and meaning search agree"),
            (0.2, "word search and meaning search agree in part"),
            (0.0, "word search and meaning search disagree"),
        ),
    ),
    "reranker_impact": (
        _feature("reranker_impact"),
        _banded(
            (0.5, "the cross-encoder kept the first order"),
            (-0.2, "the cross-encoder changed the order"),
            (-1.0, "the cross-encoder turned the order round"),
        ),
    ),
    "document_diversity": (
        _documents,
        _banded((0.8, "scattered over documents"), (0.0, "from few documents")),
    ),
    "graph_support": (
        _graph_support,
        _banded((0.01, "linked from other passages"), (0.0, "no links are known")),
    ),
    "query_coverage": (
        _feature("top_idf_coverage"),
        _banded(
            (0.7, "the words of the question stand in the passages"),
            (0.0, "important words of the question are missing"),
        ),
    ),
}


def agreeing(name: str, value: float, move: float) -> str:
    """What a value means; if its `move` (log-odds) says the opposite, that too.

    The meaning is that of the value alone; the move compares it with a usual question: few words of
    the question may be found, and yet more than usual.
    """
    meaning = SIGNALS[name][1]
    words = meaning(value)
    against = meaning(math.inf if move < 0 else -math.inf)
    if name not in FROM_GOOD_TO_BAD or abs(move) < LEAST_MOVE or words != against:
        return words
    verb = "lowers" if move < 0 else "raises"
    return f"{words}, but compared with a usual question this {verb} the confidence"


# --- recommendations --------------------------------------------------------------------------


def _recommendations(
    assessment: Assessment,
    maps: FittedMaps,
    features: Floats,
    signals: tuple[Signal, ...],
) -> tuple[str, ...]:
    """What to do, from what was measured; the strongest cause comes first."""
    by_name = {s.name: s for s in signals}
    ranking, relevance = assessment.ranking, assessment.relevance
    found: list[str] = []
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
        found.append("The passages are scattered over documents: name the document or topic.")
    if ranking.truncated[:TOP].any():
        cut = int(ranking.truncated[:TOP].sum())
        found.append(
            f"{cut} of the first passages were cut at the model's max_length: split documents into "
            "shorter passages."
        )
    if unlike_fitted(features, maps.confidence):
        found.append(
            "The model was never fitted on a question of this kind: label some, and recalibrate."
        )
    return tuple(found)


def unlike_fitted(features: Floats, confidence: TwoStageMap) -> bool:
    """Whether `STRANGE` or more of the features (d,) lie outside the range fitted on."""
    first = confidence.first
    if not first.low:
        return False
    low, high = np.array(first.low), np.array(first.high)
    return int(((features < low) | (features > high)).sum()) >= STRANGE

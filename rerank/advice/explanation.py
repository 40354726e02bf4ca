"""Why a ranking has its confidence: its signals, how much each moved it, and what to do. Each
feature belongs to one signal, so all contributions add up exactly to the log-odds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.arrays import log_odds, sigmoid
from rerank.advice.settings import FLOOR
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.list_features import list_ranking_features
from rerank.assessment.predictions import LABEL_FIRST, REASONS, SLIGHT, unlike_labelled
from rerank.assessment.ranking_features import RANKING_FEATURES
from rerank.config import two_digits
from rerank.data.duplicates import distinct
from rerank.retrieval.corpus import place_of
from rerank.types import Assessment, metadata_name

if TYPE_CHECKING:
    from rerank.assessment.model import CalibratedReranker

INTERPRETATIONS = {
    "HIGH": "strong retrieval confidence",
    "MEDIUM": "good retrieval confidence, verify",
    "LOW": "weak retrieval confidence, advisory only",
    "VERY_LOW": "no reliable result, review needed",
}
TOP = 5  # passages that count as the top
CLOSE = 0.5  # the second passage is close if its relevance is this share of the first one's
# order of the bands
FROM_GOOD_TO_BAD = {"top_score", "gap", "spread", "stage_agreement", "query_coverage"}
GRAPH = ("graph_support", "graph_boost")  # metadata of a passage: how well others link to it


@dataclass(frozen=True, slots=True)
class Signal:
    """One property of a ranking."""

    name: str
    value: float
    meaning: str  # what the value means here
    log_odds: float  # how much it moved the confidence, relative to a usual query fitted on
    moved: float  # the same in probability: the confidence minus what it would be without
    told: bool = False  # one of the few reasons that a page names


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a ranking's confidence is based on, and what to do if it is low."""

    confidence: float
    level: str
    flagged: bool  # below the advisory threshold, or not calibrated
    calibrated: bool
    signals: tuple[Signal, ...]
    recommendations: tuple[str, ...]

    def headline(self) -> str:
        """One line, such as `RAG Confidence: HIGH - strong retrieval confidence (0.92)`."""
        number = two_digits(self.confidence) + ("" if self.calibrated else ", not calibrated")
        return f"RAG Confidence: {self.level} - {INTERPRETATIONS[self.level]} ({number})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = ("confidence", "level", "calibrated", "flagged")
        return {
            "headline": self.headline(),
            "interpretation": INTERPRETATIONS[self.level],
            **{name: getattr(self, name) for name in names},
            "accepted": not self.flagged,
            "signals": [asdict(signal) for signal in self.signals],
            "recommendations": list(self.recommendations),
        }

    def text(self) -> str:
        """All of it, one item per line."""
        lines = [self.headline()]
        if self.flagged:
            why = "below the advisory threshold" if self.calibrated else "not calibrated"
            lines.append(f"Flag for review: the confidence is {why}.")
        lines += [
            f"  {s.name:<19}{s.value:>7.2f}  {s.log_odds:>+6.2f} log-odds ({s.moved:+.2f})  "
            f"{s.meaning}"
            for s in self.signals
        ]
        lines += [f"  Recommended: {sentence}" for sentence in self.recommendations]
        return "\n".join(lines)


def explain(model: CalibratedReranker, assessment: Assessment) -> Explanation:
    """Why the model gives an assessment its confidence: signals, and recommendations."""
    answered_by = model.second.model if model.second and assessment.asked_before else model
    return explain_by(answered_by.maps[model.mode_of(assessment.ranking.query)], assessment)


def explain_by(maps: FittedMaps, assessment: Assessment) -> Explanation:
    """As `explain`, by the maps that the assessment was made with: those of its query's mode."""
    first, _ = distinct(assessment.ranking.passages)  # equal passages count as one
    ranking, relevance = assessment.ranking.take(first), assessment.relevance[first]
    assessment = replace(assessment, ranking=ranking, relevance=relevance)
    signals = _signals(maps, assessment) if len(ranking) else ()
    advice: tuple[str, ...] = ()
    if not len(ranking):
        advice = ("No passage was found: add documents, or ask in other words.",)
    elif not assessment.accepted:
        advice = _advice(maps, assessment, {s.name: s.value for s in signals})
    return Explanation(
        confidence=assessment.confidence,
        level=assessment.level,
        flagged=not assessment.accepted,
        calibrated=assessment.calibrated,
        signals=signals,
        recommendations=advice,
    )


def _signals(maps: FittedMaps, assessment: Assessment) -> tuple[Signal, ...]:
    """Each signal of a ranking that has passages, with what its features add to the log-odds."""
    group_of = {name: group for group, names in maps.features.groups.items() for name in names}
    of_features = maps.confidence.contributions(assessment.features[None, :])[0]
    added: defaultdict[str, float] = defaultdict(float)
    for feature, contribution in zip(maps.features.ranking, of_features.tolist(), strict=True):
        added[signal_of(feature, group_of[feature])] += contribution
    before = log_odds(np.array([assessment.confidence]))
    signals: list[Signal] = []
    expected: list[Signal] = []
    for name, measure in signals_for(maps).items():
        bands = {start: words for (signal, start), words in BANDS.items() if signal == name}
        value, contribution = measure(assessment), added[name]
        best, *_, worst = bands.values()
        words = next((words for start, words in bands.items() if value >= start), worst)
        moved = assessment.confidence - float(sigmoid(before - contribution)[0])
        signals.append(Signal(name, value, words, contribution, moved))
        # few words of the question may be found, and yet more than usual: only the best and the
        # worst words can be contradicted by the way that the signal moved the confidence
        against = best if contribution < 0 else worst
        as_expected = name not in FROM_GOOD_TO_BAD or words != against
        if abs(contribution) >= SLIGHT and as_expected:
            expected.append(signals[-1])
    told = sorted(expected, key=lambda signal: -abs(signal.log_odds))[:REASONS]
    return tuple(replace(signal, told=signal in told) for signal in signals)


def _advice(maps: FittedMaps, found: Assessment, values: Mapping[str, float]) -> tuple[str, ...]:
    """What to do, from the values of the signals; the strongest cause comes first."""
    relevance, cut = found.relevance, int(found.ranking.truncated[:TOP].sum())
    second = relevance[1] if len(relevance) > 1 else 0.0
    many = values["document_diversity"] >= 0.8 and len(relevance) >= TOP
    causes = {
        f"The confidence is not calibrated: {LABEL_FIRST}.": not found.calibrated,
        f"No passage reaches a relevance of {FLOOR}: the documents may not hold the answer.": (
            relevance.max() < FLOOR
        ),
        "The search stages disagree: use exact terms, or expand the query.": (
            values["stage_agreement"] < 0.2
        ),
        "No clear winner: ask which one is meant, or fetch more passages.": (
            second >= CLOSE * relevance[0]
        ),
        "The first passages come from many documents: name the document or topic.": many,
        f"First passages that are longer than the model's max_length: {cut}. Only a part of "
        "each was read: split documents into shorter passages.": cut > 0,
        "The model was never fitted on a question of this kind: label some, and recalibrate.": (
            unlike_labelled(found.features[np.newaxis], maps).any()
        ),
    }
    return tuple(sentence for sentence, applies in causes.items() if applies)


SIGNAL_OF = {  # by the name of a feature; of lists, by the last part of one, as `keyword.margin`;
    # by the group, for those that are not named here
    member: signal
    for signal, members in {
        "top_score": ("logits", "score", "top", "top_cosine"),
        "gap": (
            *("margins", "margin", "margin_k", "score_margin", "score_share"),
            *("cosine_margin", "bm25_margin"),
        ),
        "spread": ("first stage", "list", "gain", "logit_spread"),
        "consensus": ("logit_consensus", "passages_scored"),
        "stage_agreement": ("agreement", "winner_gap", "winner_rank", "correlation", "overlap"),
        "reranker_impact": ("reranker_impact",),
        "document_diversity": ("diversity",),
        "query_coverage": ("coverage",),
    }.items()
    for member in members
}

Measure = Callable[[Assessment], float]


def signal_of(feature: str, group: str) -> str:
    """The signal that a feature of the confidence belongs to, by its name, else by its group."""
    return SIGNAL_OF.get(feature.rpartition(".")[2]) or SIGNAL_OF[group]


def _documents(a: Assessment) -> float:
    passages = a.ranking.passages[:TOP]
    return len({place_of(p).document for p in passages}) / len(passages)


def _graph_support(a: Assessment) -> float:
    best = a.ranking.passages[0].metadata
    try:
        support = float(next(filter(None, (metadata_name(best, key) for key in GRAPH)), "0"))
    except ValueError:
        return 0.0
    return support if math.isfinite(support) else 0.0  # JSON has no infinity


def _feature(name: str) -> Measure:
    return lambda assessment: RANKING_FEATURES[name](assessment.ranking)


SIGNALS: Mapping[str, Measure] = {
    "top_score": lambda a: float(a.relevance[0]),
    "gap": lambda a: float(a.relevance[0] - a.relevance[1:2].sum()),
    "spread": lambda a: float(a.relevance[:TOP].std()),
    "consensus": lambda a: float((a.relevance[:TOP] >= CLOSE * a.relevance[0]).mean()),
    "stage_agreement": _feature("stage_overlap"),
    "reranker_impact": _feature("reranker_impact"),
    "document_diversity": _documents,
    "graph_support": _graph_support,
    "query_coverage": _feature("top_idf_coverage"),
}
BANDS = {  # the words of a signal from each value on; of a signal they descend
    ("top_score", 0.7): "the best passage is probably right",
    ("top_score", 0.4): "the best passage may be right",
    ("top_score", 0.0): "the best passage is probably wrong",
    ("gap", 0.3): "a clear winner",
    ("gap", 0.1): "a slight lead over the second passage",
    ("gap", -1.0): "no clear winner",
    ("spread", 0.15): "the first passages differ in relevance",
    ("spread", 0.0): "the first passages are about equally relevant",
    ("consensus", 0.6): "several passages are as good as the best",
    ("consensus", 0.0): "no other passage is nearly as good as the best",
    ("stage_agreement", 0.4): "the search stages agree",
    ("stage_agreement", 0.2): "the search stages agree in part",
    ("stage_agreement", 0.0): "the search stages disagree",
    ("reranker_impact", 0.5): "the reranker kept the order of the first stage",
    ("reranker_impact", -0.2): "the reranker changed the order",
    ("reranker_impact", -1.0): "the reranker reversed the order",
    ("document_diversity", 0.8): "the first passages come from many documents",
    ("document_diversity", 0.0): "the first passages come from few documents",
    ("graph_support", 0.01): "linked from other passages",
    ("graph_support", 0.0): "no links are known",
    ("query_coverage", 0.7): "the passages contain the words of the question",
    ("query_coverage", 0.0): "important words of the question are missing",
}


def signals_for(maps: FittedMaps) -> Mapping[str, Measure]:
    """The signals of a model with these maps.

    Graph support is one of them if it was fitted as a feature of the passages' metadata. Those of
    lists that came with their scores: agreement is the mean share of the first ten passages that
    two stages both have, 1 for a single stage; coverage is that of the first passage's text.
    """
    signals = dict(SIGNALS)
    if not any(feature.key in GRAPH for feature in maps.metadata):
        del signals["graph_support"]
    if not maps.kind.stages:
        return signals
    del signals["query_coverage"]
    table, _ = list_ranking_features(maps.kind)
    shares = [function for name, function in table.items() if name.endswith(".overlap")]
    signals["stage_agreement"] = lambda a: (
        float(np.mean([share(a.ranking) for share in shares])) if shares else 1.0
    )
    if coverage := table.get("winner_term_coverage"):
        signals["query_coverage"] = lambda a: coverage(a.ranking)
    return signals

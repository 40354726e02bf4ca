"""Confidences that use no labels, as baselines to compare with.

Each takes a ranking and gives a number in [0, 1] that its authors called confidence: hand-set
formulas, the sigmoid of a cross-encoder's best score, and the three of MTEB's abstention task
(Gisserot-Boukhlef et al. 2024). "Similarity" is the cosine of the bi-encoder; "score" is the
sigmoid of the cross-encoder's logit; the results are the first ten passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from calibration.arrays import sigmoid
from rerank.assessment.ranking_features import diversity, stage_correlation
from rerank.types import OWN_STAGES, Floats, ListKind, Ranking

RESULTS = 10
TOP_LOGIT, OWN_SCORE = "sigmoid of top logit", "your own score"  # the latter of lists
SIMILAR = 0.40  # a result counts from this similarity upwards
HOT = 70.0  # `temperature` metadata above which a result earns a bonus

Heuristic = Callable[[Ranking], float]


def heuristic_confidences(heuristic: Heuristic, rankings: Sequence[Ranking]) -> Floats:
    """The formula's number for each ranking, shape (n,); 0 for a ranking without passages."""
    return np.array([heuristic(r) if len(r) else 0.0 for r in rankings], dtype=np.float64)


def sufficiency_score(r: Ranking) -> float:
    """Hand-set: best similarity + 0.03 a similar result + 0.05 (at most 0.15) a "hot" one."""
    similar = np.flatnonzero(r.first_stage.dense[:RESULTS] >= SIMILAR)
    hot = sum(_number(r.passages[i].metadata.get("temperature")) > HOT for i in similar)
    best = float(r.first_stage.dense[:RESULTS].max())
    return _unit(best + 0.03 * len(similar) + min(0.15, 0.05 * hot))


def seven_metric_score(r: Ranking) -> float:
    """Hand-set: 0.30 top score + 0.20 gap + five smaller signals, each clipped to [0, 1]."""
    scores = np.sort(sigmoid(r.logits[:RESULTS]))[::-1]
    gap = float(scores[0] - scores[1]) if len(scores) > 1 else 0.0
    return _unit(
        0.30 * float(scores[0])
        + 0.20 * gap
        + 0.15 * float((scores > 0.75).mean())
        + 0.15 * _unit(stage_correlation(r))
        + 0.10 * _unit(1 - 2 * float(scores.std()))
        + 0.05 * _unit(_number(r.passages[0].metadata.get("graph_support")))
        + 0.05 * _unit(1 - diversity(r))
    )


def coverage_score(r: Ranking) -> float:
    """Hand-set: 0.6 mean similarity + 0.4 share of the query's names found; else the mean alone."""
    mean = float(r.first_stage.dense[:RESULTS].mean())
    names = entities(r.query.text)
    if not names:
        return _unit(mean)
    text = " ".join(p.full_text for p in r.passages[:RESULTS]).lower()
    return _unit(0.6 * mean + 0.4 * sum(e.lower() in text for e in names) / len(names))


def best_logit(r: Ranking) -> float:
    """The best logit of those scored; 0 for a ranking without passages."""
    return highest(r.logits[r.scored])


def highest(logits: Floats) -> float:
    """The highest of the logits; 0 without any."""
    return float(logits.max()) if len(logits) else 0.0


def _similarities(r: Ranking) -> Floats:
    """The best ones, highest first."""
    return np.sort(r.first_stage.dense)[::-1][:RESULTS]


HEURISTICS: dict[str, Heuristic] = {
    "sufficiency score": sufficiency_score,
    "seven-metric score": seven_metric_score,
    "coverage score": coverage_score,
    TOP_LOGIT: lambda r: float(sigmoid(np.array([best_logit(r)]))[0]),
    OWN_SCORE: lambda r: _unit(best_logit(r)),
    "MTEB max": lambda r: _unit(float(_similarities(r)[0])),
    "MTEB std": lambda r: _unit(float(_similarities(r).std())),
    "MTEB diff1": lambda r: _unit(-float(np.diff(_similarities(r)[:2]).sum())),
}
# what each baseline is, and who proposed it
SOURCES = {name: rule.__doc__ or "" for name, rule in HEURISTICS.items()} | {
    TOP_LOGIT: "The sigmoid of the best logit: what cross-encoders return as their score.",
    OWN_SCORE: "The score of your last stage for its best passage, as it came, cut to [0, 1].",
    "MTEB max": "The best similarity (MTEB's abstention task, Gisserot-Boukhlef et al. 2024).",
    "MTEB std": "The standard deviation of the ten best similarities (likewise).",
    "MTEB diff1": "The lead of the best similarity over the second, 0 if alone (likewise).",
}
NEED_SCORES = (TOP_LOGIT, OWN_SCORE)  # and nothing else, such as a cosine


def baselines_of(kind: ListKind) -> dict[str, Heuristic]:
    """The baselines of lists with the scores of other stages, or those of our own stages."""
    if kind != OWN_STAGES:
        return {name: HEURISTICS[name] for name in NEED_SCORES}
    return {name: rule for name, rule in HEURISTICS.items() if name != OWN_SCORE}


def entities(text: str) -> list[str]:
    """Names a question holds: capitalised words after the first, numbers, `dotted.names`."""
    tail = text.split(maxsplit=1)[1] if " " in text.strip() else ""
    names = re.findall(r"\b[A-Z][\w-]+(?:\s+[A-Z][\w-]+)*", tail)
    names += re.findall(r"\b\d[\d.,]*\b|\b\w+(?:[._]\w+)+\b", text)
    return list(dict.fromkeys(names))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else 0.0


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))

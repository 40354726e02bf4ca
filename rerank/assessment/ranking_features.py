"""What a whole ranking says about its own top passage: the features of the confidence.

Each is a named function of one ranking, best first, with one line of meaning and its formula.
Every value is finite: a lead over a second passage that does not exist is what its line says. They
are few on purpose: with some hundred labels, a feature that says little costs more than it tells.
Nothing here knows of labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from calibration.arrays import log_odds
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.data.text import remembered
from rerank.types import Floats, Ranking

TOP = 5  # passages that "the top" means below

Feature = Callable[[Ranking], float]
RANKING_FEATURES: dict[str, Feature] = {}
GROUPS: dict[str, list[str]] = {  # of kindred features; a report adds one group after the other
    name: [] for name in ("logits", "margins", "first stage", "agreement", "coverage", "score")
}


def feature(group: str) -> Callable[[Feature], Feature]:
    """Enter a function into the table, under its own name, and into a group of kindred ones."""

    def enter(function: Feature) -> Feature:
        RANKING_FEATURES[function.__name__] = function
        GROUPS.setdefault(group, []).append(function.__name__)
        return function

    return enter


def ranking_features(rankings: Sequence[Ranking]) -> Floats:
    """All features, shape (n, len(RANKING_FEATURES)), columns in the table's order; finite.

    A ranking without passages gives a row of zeros; its confidence is 0 by definition, not by map.
    """
    rows = [
        [function(r) for function in RANKING_FEATURES.values()]
        if len(r)
        else [0.0] * len(RANKING_FEATURES)
        for r in rankings
    ]
    return np.array(rows, dtype=np.float64).reshape(len(rankings), len(RANKING_FEATURES))


def meaning(name: str) -> str:
    """The words before the formula in a feature's docstring."""
    return (RANKING_FEATURES[name].__doc__ or name).split(":")[0].strip().rstrip(".")


def _second(values: Floats, lowest: float) -> float:
    return float(values[1]) if len(values) > 1 else lowest


def _column(r: Ranking, name: str) -> Floats:
    return r.features[:, list(PASSAGE_FEATURES).index(name)]


def _logits(r: Ranking) -> Floats:
    """The logits that the cross-encoder gave, highest first; at least one."""
    return np.sort(r.logits[r.scored] if r.scored.any() else r.logits[:1])[::-1]


# --- the passages' scores ---------------------------------------------------------------------


@feature("score")
def top_score(r: Ranking) -> float:
    """Best passage score: log-odds of max score."""
    return float(log_odds(r.score).max())


@feature("score")
def score_margin(r: Ranking) -> float:
    """Lead in passage score over the second: difference of log-odds (to 1e-6 if there is none)."""
    ordered = np.sort(log_odds(r.score))[::-1]
    return float(ordered[0]) - _second(ordered, float(log_odds(np.zeros(1))[0]))


@feature("score")
def score_share(r: Ranking) -> float:
    """Share of the best passage in all passage scores: max / sum."""
    return float(r.score.max() / max(float(r.score.sum()), 1e-12))


# --- the cross-encoder ------------------------------------------------------------------------


@feature("logits")
def top_logit(r: Ranking) -> float:
    """Best cross-encoder score: max logit."""
    return float(_logits(r)[0])


@feature("margins")
def winner_logit_gap(r: Ranking) -> float:
    """How far the top passage is from the best score: its logit - max logit."""
    return float(r.logits[0] - _logits(r)[0])


@feature("margins")
def logit_margin(r: Ranking) -> float:
    """Lead in cross-encoder score over the second: logit 1 - logit 2; 0 with one passage."""
    logits = _logits(r)
    return float(logits[0]) - _second(logits, float(logits[0]))


# --- the first stage --------------------------------------------------------------------------


@feature("first stage")
def top_cosine(r: Ranking) -> float:
    """Best similarity: max cosine."""
    return float(r.first_stage.dense.max())


@feature("first stage")
def cosine_margin(r: Ranking) -> float:
    """Lead in similarity over the second: cosine 1 - cosine 2; 0 with one passage."""
    ordered = np.sort(r.first_stage.dense)[::-1]
    return float(ordered[0]) - _second(ordered, float(ordered[0]))


@feature("agreement")
def winner_cosine_gap(r: Ranking) -> float:
    """How far the top passage is from the most similar: its cosine - max cosine."""
    return float(r.first_stage.dense[0] - r.first_stage.dense.max())


@feature("first stage")
def bm25_margin(r: Ranking) -> float:
    """Lead in BM25 over the second: (score 1 - score 2) / score 1; 0 with no score above 0."""
    ordered = np.sort(np.maximum(r.first_stage.bm25, 0.0))[::-1]
    return (
        (float(ordered[0]) - _second(ordered, 0.0)) / float(ordered[0]) if ordered[0] > 0 else 0.0
    )


@feature("agreement")
def stage_overlap(r: Ranking) -> float:
    """Passages both stages rank high: share of the first 10 of one in the first 10 of the other."""
    both = (r.first_stage.bm25_rank <= 10) & (r.first_stage.dense_rank <= 10)
    return float(both.sum()) / 10.0


@feature("agreement")
def winner_dense_rank(r: Ranking) -> float:
    """Log rank of the top passage by similarity: log(rank)."""
    return float(np.log(r.first_stage.dense_rank[0]))


@feature("first stage")
def log_list_length(r: Ranking) -> float:
    """Log of the length of the list: log(number of passages)."""
    return float(np.log(len(r)))


@feature("first stage")
def dense_wig(r: Ranking) -> float:
    """Gain of the similarities' top: mean of the top 5 - mean of all."""
    scores = np.sort(r.first_stage.dense)[::-1]
    return float(scores[:TOP].mean() - scores.mean())


# --- words ------------------------------------------------------------------------------------


@feature("coverage")
def winner_title_coverage(r: Ranking) -> float:
    """Query words in the top passage's title: share of the idf found."""
    return float(_column(r, "title_coverage")[0])


@feature("coverage")
def winner_bigram_coverage(r: Ranking) -> float:
    """Neighbouring query words side by side in the top passage: share found."""
    return float(_column(r, "bigram_coverage")[0])


@feature("coverage")
def diversity(r: Ranking) -> float:
    """Difference among the top passages: mean Jaccard distance of word sets, first 5."""
    sets = [_word_set(p.text) for p in r.passages[:TOP]]
    distances = [1 - len(a & b) / max(1, len(a | b)) for a, b in combinations(sets, 2)]
    return float(np.mean(distances)) if distances else 0.0


@remembered(2**22)
def _word_set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))

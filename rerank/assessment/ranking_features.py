"""The features of a whole ranking, from which the confidence in its top passage is computed.

Each is a named function of one ranking, best first, with one line of meaning and its formula. All
are finite; a correlation of fewer than two values, or of constant ones, is 0. No label is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from calibration.arrays import log_odds
from rerank.assessment.passage_features import PASSAGE_FEATURES
from rerank.data.duplicates import distinct
from rerank.data.words import READ, WORD_BYTES, cached_by_bytes
from rerank.types import Floats, Ranking

TOP = 5  # passages that count as the top
CLOSE = 1.0  # logits within this of the best agree with it
PEAK = 20  # passages in the first-stage peak statistics

Feature = Callable[[Ranking], float]
RANKING_FEATURES: dict[str, Feature] = {}
GROUPS: dict[str, list[str]] = {  # of related features; a report adds one group after the other
    name: [] for name in ("logits", "margins", "first stage", "agreement", "coverage", "score")
}


def feature(group: str, name: str = "") -> Callable[[Feature], Feature]:
    """Register a function in the table, by default under its own name, and in a group."""

    def enter(function: Feature) -> Feature:
        key = name or function.__name__
        RANKING_FEATURES[key] = function
        GROUPS.setdefault(group, []).append(key)
        return function

    return enter


def ranking_features(
    rankings: Sequence[Ranking], table: Mapping[str, Feature] = RANKING_FEATURES
) -> Floats:
    """All features, shape (n, len(table)), columns in the table's order; finite.

    Of equal passages, only the first counts. A ranking without passages gives a row of zeros; its
    confidence is 0 by definition, not by map.
    """
    values = np.zeros((len(rankings), len(table)))
    for row, r in zip(values, rankings, strict=True):
        if len(r):
            once = r.take(distinct(r.passages)[0])
            row[:] = [function(once) for function in table.values()]
    return values


def meaning(name: str, table: Mapping[str, Feature] = RANKING_FEATURES) -> str:
    """The part of a feature's docstring before the formula, which follows the last colon."""
    return (table[name].__doc__ or name).rsplit(": ", 1)[0].strip().rstrip(".")


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation with mean ranks for ties (Spearman 1904), in [-1, 1]; 0 where undefined."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(mean_ranks(a), mean_ranks(b))[0, 1])


def mean_ranks(values: Floats) -> Floats:
    """Ranks from 1, lowest first; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[inverse]


def margin(best: Floats) -> float:
    """Score 1 - score 2, of scores (n,), highest first; 0 with one."""
    return float(best[0] - best[1]) if len(best) > 1 else 0.0


def margin_k(best: Floats) -> float:
    """Score 1 - the mean of scores 2 to 5, of scores (n,), highest first; 0 with one."""
    return float(best[0] - best[1:TOP].mean()) if len(best) > 1 else 0.0


def gain(best: Floats) -> float:
    """The mean of scores 1 to 5 - the mean of all, of scores (n,), highest first."""
    return float(best[:TOP].mean() - best.mean())


def _second(values: Floats, lowest: float) -> float:
    return float(values[1]) if len(values) > 1 else lowest


def of_winner(column: int, text: str | None) -> Feature:
    """The top passage's value in a column of the passages' features, described by a docstring."""

    def value(r: Ranking) -> float:
        return float(r.features[0, column])

    value.__doc__ = text
    return value


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
def score_none(r: Ranking) -> float:
    """Log chance that a passage is wrong: mean over the first 10 of log(1 - score)."""
    return float(np.log1p(-np.minimum(r.score[:10], 1 - 1e-6)).mean())


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
    """Cross-encoder score of the top passage minus the best one: its logit - max logit."""
    return float(r.logits[0] - _logits(r)[0])


@feature("margins")
def logit_margin(r: Ranking) -> float:
    """Lead in cross-encoder score over the second: logit 1 - logit 2; 0 with one passage."""
    return margin(_logits(r))


@feature("margins")
def logit_margin_k(r: Ranking) -> float:
    """Lead in cross-encoder score over the mean of the next four: logit 1 - mean of logits 2..5."""
    return margin_k(_logits(r))


@feature("logits")
def logit_mean(r: Ranking) -> float:
    """Mean of the best cross-encoder scores: mean of the 5 highest logits."""
    return float(_logits(r)[:TOP].mean())


@feature("margins")
def logit_spread(r: Ranking) -> float:
    """Spread of the cross-encoder scores: standard deviation of the logits."""
    return float(_logits(r).std())


@feature("margins")
def logit_consensus(r: Ranking) -> float:
    """Passages with a cross-encoder score close to the best: share within 1 of the maximum."""
    logits = _logits(r)
    return float((logits >= logits[0] - CLOSE).mean())


@feature("score")
def passages_scored(r: Ranking) -> float:
    """Passages likely enough to be scored: how many the cross-encoder scored."""
    return float(r.scored.sum())


@feature("agreement")
def reranker_impact(r: Ranking) -> float:
    """Agreement of the fused and the reranked order: Spearman of fused score and logit."""
    return spearman(r.first_stage.fused[r.scored], r.logits[r.scored])


# --- the first stage --------------------------------------------------------------------------


@feature("first stage")
def top_cosine(r: Ranking) -> float:
    """Best embedding similarity: max cosine."""
    return float(r.first_stage.dense.max())


@feature("first stage")
def cosine_margin(r: Ranking) -> float:
    """Lead in embedding similarity over the second: cosine 1 - cosine 2; 0 with one passage."""
    return margin(np.sort(r.first_stage.dense)[::-1])


@feature("agreement")
def winner_cosine_gap(r: Ranking) -> float:
    """Embedding similarity of the top passage minus the best one: its cosine - max cosine."""
    return float(r.first_stage.dense[0] - r.first_stage.dense.max())


@feature("first stage")
def bm25_margin(r: Ranking) -> float:
    """Lead in BM25 over the second: (score 1 - score 2) / score 1; 0 with no score above 0."""
    ordered = np.sort(np.maximum(r.first_stage.bm25, 0.0))[::-1]
    best = float(ordered[0])
    return (best - _second(ordered, 0.0)) / best if best > 0 else 0.0


@feature("agreement")
def stage_correlation(r: Ranking) -> float:
    """Agreement of BM25 and embeddings: Spearman of their scores over the candidates."""
    return spearman(r.first_stage.bm25, r.first_stage.dense)


@feature("agreement")
def stage_overlap(r: Ranking) -> float:
    """Passages that both stages rank high: share of the first 10 of one in those of the other."""
    stage = r.first_stage
    found = stage.bm25 > 0  # in a short list, a passage without a word of the query ranks high too
    return float((found & (stage.bm25_rank <= 10) & (stage.dense_rank <= 10)).sum()) / 10.0


@feature("agreement")
def winner_bm25_rank(r: Ranking) -> float:
    """Log rank of the top passage in BM25: log(rank)."""
    return float(np.log(r.first_stage.bm25_rank[0]))


@feature("agreement")
def winner_dense_rank(r: Ranking) -> float:
    """Log rank of the top passage by embedding similarity: log(rank)."""
    return float(np.log(r.first_stage.dense_rank[0]))


@feature("first stage")
def bm25_nqc(r: Ranking) -> float:
    """Spread of the best BM25 scores: NQC (Shtok et al. 2012), deviation / mean of the top 20.

    Shtok divides by the score of the corpus as one document, which is not known here.
    """
    peak = np.sort(np.maximum(r.first_stage.bm25, 0.0))[::-1][:PEAK]
    return float(peak.std() / peak.mean()) if peak[0] > 0 else 0.0


@feature("first stage")
def bm25_wig(r: Ranking) -> float:
    """Best BM25 scores above the mean: WIG (Zhou & Croft 2007), (top 5 - mean) / sqrt(words).

    The mean of the candidates stands for the score of the corpus.
    """
    scores = np.sort(r.first_stage.bm25)[::-1]
    return float((scores[:TOP].mean() - scores.mean()) / np.sqrt(_length(r.query.text)))


@feature("first stage")
def log_list_length(r: Ranking) -> float:
    """Log of the length of the list: log(number of passages)."""
    return float(np.log(len(r)))


@feature("first stage")
def dense_wig(r: Ranking) -> float:
    """Best embedding similarities above the mean: mean of the top 5 - mean of all."""
    return gain(np.sort(r.first_stage.dense)[::-1])


# --- words ------------------------------------------------------------------------------------


COLUMNS = list(PASSAGE_FEATURES)
COVERAGE = {  # of the top passage, by the feature of a passage
    "term": "Query words in the top passage: share of them found",
    "idf": "Query words in the top passage, weighted by rarity: share of the idf found",
    "sentence": "Query words in one sentence of the top passage: share of the idf in the best one",
    "title": "Query words in the top passage's title: share of the idf found",
    "bigram": "Neighbouring query words side by side in the top passage: share found",
}
for _words, _meaning in COVERAGE.items():
    _of_winner = of_winner(COLUMNS.index(f"{_words}_coverage"), _meaning)
    feature("coverage", f"winner_{_words}_coverage")(_of_winner)


@feature("coverage")
def top_idf_coverage(r: Ranking) -> float:
    """Query words in any of the top passages: highest share of the idf in one of the first 5."""
    return float(r.features[:TOP, COLUMNS.index("idf_coverage")].max())


@feature("coverage")
def query_length(r: Ranking) -> float:
    """Log of the length of the query: log(number of words)."""
    return float(np.log(_length(r.query.text)))


@feature("coverage")
def diversity(r: Ranking) -> float:
    """Difference among the top passages: mean Jaccard distance of word sets, first 5."""
    sets = [_word_set(p.text[:READ]) for p in r.passages[:TOP]]
    distances = [1 - len(a & b) / max(1, len(a | b)) for a, b in combinations(sets, 2)]
    return float(np.mean(distances)) if distances else 0.0


@feature("coverage")
def truncation(r: Ranking) -> float:
    """Passages of which the cross-encoder read only a part: share of those scored."""
    return float(r.truncated[r.scored].mean()) if r.scored.any() else 0.0


def _length(text: str) -> int:
    return max(1, len(re.findall(r"\w+", text)))


def _bytes_of(found: frozenset[str]) -> int:
    return WORD_BYTES * len(found)


@cached_by_bytes(2**26, _bytes_of)
def _word_set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))

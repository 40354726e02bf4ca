"""The features of a list that comes with its scores, from any retriever and any reranker.

Every stage gives the same few features of a passage and of a whole ranking; texts add the features
of words. All are finite. Nothing here knows of labels or of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from rerank.assessment import ranking_features as of_ranking
from rerank.assessment.passage_features import CROSS_ENCODER, FIRST_STAGE, View, lead
from rerank.assessment.ranking_features import (
    Feature,
    gain,
    margin,
    margin_k,
    mean_ranks,
    spearman,
)
from rerank.data.words import content_words, passage_words, words
from rerank.types import FirstStage, Floats, ListKind, Query, Ranking

STAGE = ("score", "standing", "lead", "log_rank", "absent")  # of a passage in a stage
LAST = ("standing", "log_rank")  # of the last stage; the others are in `CROSS_ENCODER`
TEXT = (  # of `FIRST_STAGE`; all words have equal weight, as there is no corpus for idf
    "term_coverage",
    "sentence_coverage",
    "content_lead",
    "title_coverage",
    "bigram_coverage",
    "log_length",
)
WINNER = ("term_coverage", "sentence_coverage", "title_coverage", "bigram_coverage")
SCORE = ("top_score", "score_margin", "score_none", "score_share")  # of `RANKING_FEATURES`


def list_passage_features(kind: ListKind) -> tuple[str, ...]:
    """Names of the features of a passage, in the order of their columns."""
    *first, last = kind.stages
    names = [f"{stage}.{name}" for stage in first for name in STAGE]
    names += [f"{last}.{name}" for name in LAST]
    return (*CROSS_ENCODER, *names, "fused_log_rank", *(TEXT if kind.texts else ()))


def fill_missing(scores: Floats) -> Floats:
    """Scores (n,), with the lowest score for missing ones; 0 without any."""
    known = scores[~np.isnan(scores)]
    return np.where(np.isnan(scores), known.min() if len(known) else 0.0, scores)


def stage_ranks(scores: Floats) -> Floats:
    """Ranks (n,) by score, 1 is highest, ties share; missing scores rank one below the last."""
    known = ~np.isnan(scores)
    ranks = np.full(len(scores), known.sum() + 1.0)
    if known.any():
        ranks[known] = mean_ranks(-scores[known])
    return ranks


def list_features(kind: ListKind, query: Query, stage: FirstStage, *, language: str) -> Floats:
    """The features of each passage, (n, d): `list_passage_features` less `CROSS_ENCODER`.

    The rows are those of the query's passages, in their order, which all differ.
    """
    scores, passages = query.scores or {}, query.passages or ()
    *first, last = kind.stages
    columns_of = {name: _stage_features(scores[name]) for name in kind.stages}
    columns = [columns_of[stage_name][name] for stage_name in first for name in STAGE]
    columns += [columns_of[last][name] for name in LAST]
    query_words = tuple(words(query.text, language=language))
    view = View(
        stage,
        query_words,
        dict.fromkeys(query_words, 1.0),
        tuple(content_words(query.text, language=language)) or query_words,
        tuple(passage_words(p, language) for p in passages) if kind.texts else (),
    )
    named = ("fused_log_rank", *(TEXT if kind.texts else ()))
    return np.column_stack([*columns, *(FIRST_STAGE[name](view) for name in named)])


def _stage_features(scores: Floats) -> dict[str, Floats]:
    """`STAGE` of the passages, (n,) each.

    `standing` is (score - mean of the list) / standard deviation of the list; 0 if all are equal.
    """
    values = fill_missing(scores)
    # the mean of equal scores may be rounded, and the spread of tiny ones may be 0
    spread = float(values.std()) if len(values) and np.ptp(values) > 0 else 0.0
    return {
        "score": values,
        "standing": (values - values.mean()) / spread if spread > 0 else np.zeros(len(values)),
        "lead": lead(values),
        "log_rank": np.log(stage_ranks(scores)),
        "absent": np.isnan(scores).astype(np.float64),
    }


# --- of a whole ranking -------------------------------------------------------------------------


def _scores(r: Ranking, stage: str) -> Floats:
    """The scores of one stage, best passage first, (n,); NaN where it did not return a passage."""
    return np.asarray((r.query.scores or {})[stage][r.first_stage.rows])


def _sorted(r: Ranking, stage: str) -> Floats:
    return np.sort(fill_missing(_scores(r, stage)))[::-1]


def _top(r: Ranking, stage: str) -> float:
    """Best score of {stage}: max score."""
    return float(_sorted(r, stage)[0])


def _margin(r: Ranking, stage: str) -> float:
    """Lead over the second by {stage}: score 1 - score 2; 0 with one passage."""
    return margin(_sorted(r, stage))


def _margin_k(r: Ranking, stage: str) -> float:
    """Lead over the mean of the next four by {stage}: score 1 - mean of scores 2..5."""
    return margin_k(_sorted(r, stage))


def _gain(r: Ranking, stage: str) -> float:
    """Best scores above the mean by {stage}: mean of the top 5 - mean of all."""
    return gain(_sorted(r, stage))


def _winner_gap(r: Ranking, stage: str) -> float:
    """Score of the top passage minus the best one by {stage}: its score - max score."""
    values = fill_missing(_scores(r, stage))
    return float(values[0] - values.max())


def _winner_rank(r: Ranking, stage: str) -> float:
    """Log rank of the top passage by {stage}: log(rank)."""
    return float(np.log(stage_ranks(_scores(r, stage))[0]))


OF_STAGE: Mapping[str, Callable[[Ranking, str], float]] = {
    "top": _top,
    "margin": _margin,
    "margin_k": _margin_k,
    "gain": _gain,
    "winner_gap": _winner_gap,
    "winner_rank": _winner_rank,
}


def _correlation(r: Ranking, one: str, other: str) -> float:
    """Agreement of {one} and {other}: Spearman of their scores over the list."""
    return spearman(fill_missing(_scores(r, one)), fill_missing(_scores(r, other)))


def _overlap(r: Ranking, one: str, other: str) -> float:
    """Passages that {one} and {other} rank high: share of the first 10 that both have."""
    tops = [set(_first_ten(_scores(r, stage))) for stage in (one, other)]
    return len(tops[0] & tops[1]) / min(10, len(r))


def _first_ten(scores: Floats) -> list[int]:
    """The places of the ten highest scores; of equal scores the first ones; without missing."""
    order = np.argsort(-scores, kind="stable")  # missing ones last
    return [int(i) for i in order[: min(10, np.count_nonzero(~np.isnan(scores)))]]


def _winner(column: int) -> Feature:
    return lambda r: float(r.features[0, column])


@cache
def list_ranking_features(kind: ListKind) -> tuple[dict[str, Feature], dict[str, list[str]]]:
    """The features of a whole ranking by name, and the names in each group of related ones."""
    groups: dict[str, dict[str, Feature]] = {}
    for stage in kind.stages:
        groups[f"scores of {stage}"] = {
            f"{stage}.{name}": _with_stage_names(function, stage=stage)
            for name, function in OF_STAGE.items()
        }
    pairs = [(a, b) for i, a in enumerate(kind.stages) for b in kind.stages[i + 1 :]]
    if pairs:
        groups["agreement"] = {
            f"{one}.{other}.{name}": _with_stage_names(function, one=one, other=other)
            for one, other in pairs
            for name, function in (("correlation", _correlation), ("overlap", _overlap))
        }
    ours = of_ranking.RANKING_FEATURES
    groups["list"] = {name: ours[name] for name in ("log_list_length", "query_length")}
    if kind.texts:
        columns = list_passage_features(kind)
        groups["coverage"] = {
            name: _with_docstring(_winner(columns.index(column)), ours[name].__doc__)
            for column, name in ((column, f"winner_{column}") for column in WINNER)
        } | {"diversity": ours["diversity"]}
    groups["score"] = {name: ours[name] for name in SCORE}
    table = {
        name: function
        for group_features in groups.values()
        for name, function in group_features.items()
    }
    return table, {group: list(group_features) for group, group_features in groups.items()}


def _with_stage_names(function: Callable[..., float], **stages: str) -> Feature:
    """The feature for these stages, with their names filled into its docstring."""
    return _with_docstring(
        lambda r: function(r, **stages), (function.__doc__ or "").format(**stages)
    )


def _with_docstring(function: Feature, text: str | None) -> Feature:
    function.__doc__ = text
    return function

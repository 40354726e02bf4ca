"""The features of a list that comes with its scores, from any retriever and any reranker.

Every stage gives the same few features; texts add the features of words. All are finite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations

import numpy as np

from rerank.assessment import ranking_features as of_ranking
from rerank.assessment.passage_features import CROSS_ENCODER, FIRST_STAGE, lead, view_of
from rerank.assessment.ranking_features import Feature, of_winner
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
    ranks[known] = of_ranking.mean_ranks(-scores[known])
    return ranks


def list_features(kind: ListKind, query: Query, stage: FirstStage, *, language: str) -> Floats:
    """`list_passage_features` less `CROSS_ENCODER` of the query's passages, (n, d): all differ."""
    scores, passages = query.scores or {}, query.passages or ()
    *first, last = kind.stages
    columns_of = {name: _stage_features(scores[name]) for name in kind.stages}
    columns = [columns_of[stage_name][name] for stage_name in first for name in STAGE]
    columns += [columns_of[last][name] for name in LAST]
    read = passages if kind.texts else ()
    view = view_of(query.text, read, stage, lambda _: 1.0, language=language)
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


def _sorted(scores: Floats) -> Floats:
    return np.sort(fill_missing(scores))[::-1]


# of the scores by one stage: the meaning, and the function
STAGE_FEATURES: Mapping[str, tuple[str, Callable[[Floats], float]]] = {
    "top": ("Best score of {}: max score", lambda s: float(_sorted(s)[0])),
    "margin": (
        "Lead over the second by {}: score 1 - score 2; 0 with one passage",
        lambda s: of_ranking.margin(_sorted(s)),
    ),
    "margin_k": (
        "Lead over the mean of the next four by {}: score 1 - mean of scores 2..5",
        lambda s: of_ranking.margin_k(_sorted(s)),
    ),
    "gain": (
        "Best scores above the mean by {}: mean of the top 5 - mean of all",
        lambda s: of_ranking.gain(_sorted(s)),
    ),
    "winner_gap": (
        "Score of the top passage minus the best one by {}: its score - max score",
        lambda s: float(fill_missing(s)[0] - fill_missing(s).max()),
    ),
    "winner_rank": (
        "Log rank of the top passage by {}: log(rank)",
        lambda s: float(np.log(stage_ranks(s)[0])),
    ),
}


def _overlap(one: Floats, other: Floats) -> float:
    # of equal scores the first ones; missing scores come last, and are left out
    tops = [np.argsort(-s, kind="stable")[: min(10, (~np.isnan(s)).sum())] for s in (one, other)]
    return len(set(tops[0].tolist()) & set(tops[1].tolist())) / min(10, len(one))


STAGE_PAIR_FEATURES: Mapping[str, tuple[str, Callable[[Floats, Floats], float]]] = {
    "correlation": (
        "Agreement of {} and {}: Spearman of their scores over the list",
        lambda one, other: of_ranking.spearman(fill_missing(one), fill_missing(other)),
    ),
    "overlap": (
        "Passages that {} and {} rank high: share of the first 10 that both have",
        _overlap,
    ),
}


@cache
def list_ranking_features(kind: ListKind) -> tuple[dict[str, Feature], dict[str, list[str]]]:
    """The features of a whole ranking by name, and the names in each group of related ones."""
    groups: dict[str, dict[str, Feature]] = {
        f"scores of {stage}": {
            f"{stage}.{name}": _of_stages(function, text, stage)
            for name, (text, function) in STAGE_FEATURES.items()
        }
        for stage in kind.stages
    }
    if len(kind.stages) > 1:
        groups["agreement"] = {
            f"{one}.{other}.{name}": _of_stages(function, text, one, other)
            for one, other in combinations(kind.stages, 2)
            for name, (text, function) in STAGE_PAIR_FEATURES.items()
        }
    ours = of_ranking.RANKING_FEATURES
    groups["list"] = {name: ours[name] for name in ("log_list_length", "query_length")}
    if kind.texts:
        columns = list_passage_features(kind)
        groups["coverage"] = {
            f"winner_{column}": of_winner(columns.index(column), ours[f"winner_{column}"].__doc__)
            for column in WINNER
        } | {"diversity": ours["diversity"]}
    groups["score"] = {name: ours[name] for name in SCORE}
    table = {name: f for of_group in groups.values() for name, f in of_group.items()}
    return table, {group: list(of_group) for group, of_group in groups.items()}


def _of_stages(function: Callable[..., float], text: str, *stages: str) -> Feature:
    """The feature of the scores by these stages, with their names filled into its meaning."""

    def of(r: Ranking) -> float:
        return function(*(_scores(r, stage) for stage in stages))

    of.__doc__ = text.format(*stages)
    return of

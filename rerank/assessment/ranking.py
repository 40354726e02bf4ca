"""From candidates to a ranking: the maps of passages, before and after the cross-encoder."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from calibration.maps import CalibrationMap
from rerank.assessment.passage_features import cross_encoder_features
from rerank.data.duplicates import distinct, highest_of_equal
from rerank.types import Candidates, FirstStage, Floats, Ints, Ranking, Scored

MIN_SCORED = 2  # passages, however unlikely the second: the lead of the first is a feature


def unscored_features(candidates: Candidates) -> Floats:
    """The passage features (n, d) before the cross-encoder; its own are the same in every row."""
    n = len(candidates)
    own = cross_encoder_features(np.zeros(n), np.zeros(n, dtype=np.bool_))
    return np.column_stack([own, candidates.features])


def prior_score(candidates: Candidates, prior: CalibrationMap) -> Floats:
    """The score of the candidates (n,) in [0, 1] by a map fitted on `unscored_features`."""
    return prior.predict(unscored_features(candidates)) if len(candidates) else np.zeros(0)


def limit_scored(scored: Scored, cutoff: float) -> Scored:
    """What `Pipeline.score` would give with this cutoff, for candidates scored with a lower one."""
    count = count_to_score(scored.prior_scores[: len(scored.logits)], cutoff)
    return replace(scored, logits=scored.logits[:count], truncated=scored.truncated[:count])


def read(scored: Scored) -> Ranking:
    """The candidates with all their features, in the order they came in, without scores: all 0.

    Equal passages share the highest of their logits. A missing logit is set to the lowest of the
    others, to 0 without any.
    """
    n, m = len(scored), len(scored.logits)
    candidates = scored.candidates
    first, group = distinct(candidates.passages)
    logits = highest_of_equal(np.append(scored.logits, np.full(n - m, np.nan)), group)
    given = ~np.isnan(logits)
    logits = np.where(given, logits, scored.logits.min() if m else 0.0)
    truncated = np.append(scored.truncated, np.zeros(n - m, dtype=np.bool_))
    truncated = highest_of_equal(truncated.astype(np.float64), group) > 0
    own = cross_encoder_features(logits[first], given[first])[group]
    features = np.column_stack([own, candidates.features])
    return Ranking(candidates, logits, given, truncated, features, np.zeros(n))


def rank(scored: Scored, score: CalibrationMap, *, rank_by: str = "relevance") -> Ranking:
    """The candidates with the scores of the map `score`, ordered as `reorder` does."""
    unordered = read(scored)
    if len(scored):
        unordered = replace(unordered, score=score.predict(unordered.features))
    return reorder(unordered, rank_by=rank_by)


def reorder(ranking: Ranking, *, rank_by: str) -> Ranking:
    """The ranking in the order of `best_first`."""
    return ranking.take(best_first(ranking, rank_by=rank_by))


def best_first(ranking: Ranking, *, rank_by: str) -> Ints:
    """The positions (n,) of the passages, best first.

    `relevance` is the order by score, Robertson's probability ranking principle (1977); `logit` is
    the raw cross-encoder order, `fused` the first stage's, `dense` that by cosine. Ties keep the
    fused order; any other name means `relevance`.
    """
    fused = ranking.first_stage.fused
    by_fused = np.argsort(-fused, kind="stable")
    if rank_by == "fused":
        return by_fused
    if rank_by == "dense":
        key = ranking.first_stage.dense
    elif rank_by == "logit":
        key = np.where(ranking.scored, ranking.logits, -np.inf)
    else:
        key = ranking.score
    return by_fused[np.argsort(-key[by_fused], kind="stable")]


def with_empty_last(ranking: Ranking) -> Ranking:
    """The ranking, and after it the passages without any text that came with the query."""
    provided = ranking.query.passages or ()
    rows = np.setdiff1d(np.arange(len(provided)), ranking.first_stage.rows)
    if not len(rows):
        return ranking
    n, m = len(ranking), len(rows)
    nothing = np.full(m, 0.0 if ranking.query.scores is None else np.nan)
    last, none_read = np.full(m, n + 1), np.zeros(m, dtype=np.bool_)
    empty = FirstStage(rows, nothing, nothing, last, last, np.zeros(m))
    both = ([getattr(s, f.name) for f in fields(s)] for s in (ranking.first_stage, empty))
    candidates = Candidates(
        ranking.query,
        (*ranking.passages, *(provided[i] for i in rows)),
        FirstStage(*map(np.append, *both)),
        np.pad(ranking.candidates.features, ((0, m), (0, 0))),
    )
    return Ranking(
        candidates,
        np.append(ranking.logits, np.full(m, ranking.logits.min() if n else 0.0)),
        np.append(ranking.scored, none_read),
        np.append(ranking.truncated, none_read),
        np.pad(ranking.features, ((0, m), (0, 0))),
        np.append(ranking.score, np.zeros(m)),
    )


def by_prior(candidates: Candidates, prior_scores: Floats) -> tuple[Candidates, Floats, int]:
    """The candidates, likeliest first, their prior scores, and how many of them differ.

    Ties keep the fused order; passages that equal a likelier one come last.
    """
    by_fused = np.argsort(-candidates.first_stage.fused, kind="stable")
    order = by_fused[np.argsort(-prior_scores[by_fused], kind="stable")]
    first, _ = distinct([candidates.passages[i] for i in order])
    order = np.append(order[first], np.delete(order, first))
    return candidates.take(order), prior_scores[order], len(first)


def count_to_score(prior_scores: Floats, cutoff: float) -> int:
    """How many of the passages, likeliest first, are to be scored."""
    likely = int((prior_scores >= cutoff * prior_scores.max(initial=0.0)).sum())
    return min(max(likely, MIN_SCORED), len(prior_scores))

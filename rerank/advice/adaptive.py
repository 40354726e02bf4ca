"""What to hand on: as many passages as a question needs, and those of a second try.

A question needs the first k at which sufficiency reaches a threshold. A second try expands the
query with words of its passages (RM3: Lavrenko & Croft, SIGIR 2001; Abdul-Jaleel et al., TREC
2004). It brings other passages only if it raises the confidence, and keeps the first confidence:
the higher one of two is too high.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rerank.advice.settings import DEEPEST, Strategy
from rerank.assessment.fitted_maps import FittedMaps
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.relevance import relevance_and_sufficiency
from rerank.config import VERDICTS
from rerank.data.duplicates import distinct
from rerank.data.words import Lexicon, words
from rerank.errors import InputError
from rerank.filters import Where
from rerank.types import Assessment, Candidates, Floats, Passage, Query, RankedPassage

THRESHOLD, MAX_K, LEAST_GAIN, NO_MORE = "threshold", "max_k", "least_gain", "no_more"
NO_RESULTS, NO_PASSAGES = "no_results", "no_passages"
FEEDBACK = 5  # passages whose words expand a query
MOST_WORDS = 10  # that are added
FREQUENT = math.log(9)  # the idf of a word that occurs in a tenth of all passages


@dataclass(frozen=True, slots=True)
class AdaptiveResult:
    """The selected passages, and why there are so many."""

    passages: tuple[RankedPassage, ...]  # best first
    sufficiency: float  # P(one of them is right)
    stop_reason: str  # threshold, max_k, least_gain, no_more, no_results, no_passages
    assessment: Assessment

    @property
    def k(self) -> int:
        """Count of passages."""
        return len(self.passages)

    @property
    def verdict(self) -> str:
        """SUFFICIENT, PARTIAL or INSUFFICIENT; the last one without any passage."""
        t, calibrated = self.assessment.thresholds, self.assessment.calibrated
        return t.verdict(self.sufficiency, calibrated=calibrated) if self.k else VERDICTS[-1]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; level and acceptance are those of the whole ranking."""
        of_ranking = ("confidence", "level", "accepted", "calibrated")
        return {
            **{name: getattr(self, name) for name in ("k", "sufficiency", "verdict")},
            **{name: getattr(self.assessment, name) for name in of_ranking},
            **self.assessment.marks,
            "stop_reason": self.stop_reason,
            "passages": [{**p.to_dict(), "title": p.title, "text": p.text} for p in self.passages],
        }


def search(
    model: CalibratedReranker,
    text: str,
    strategy: Strategy = Strategy(),
    *,
    metadata: Mapping[str, Any] | None = None,
    where: Mapping[str, Any] | None = None,
) -> AdaptiveResult:
    """Search the model's index, and return as many passages as the question needs.

    Raises:
        InputError, RetrieverError: as `CalibratedReranker.search`.
    """
    query = Query(text, metadata={} if metadata is None else metadata, where=Where.read(where))
    return take(model.assess([query])[0], strategy)


def depth(assessment: Assessment, k: int) -> int:
    """The rank of the `k`-th different passage, 1 <= k; `k` itself, if there are fewer."""
    first, _ = distinct(assessment.first(len(assessment.sufficiency_at)))
    return int(first[k - 1]) + 1 if k <= len(first) else k


def guaranteed(maps: FittedMaps, query: Query) -> Strategy:
    """The strategy with which a calibrated model loses at most one answer in twenty questions.

    It takes as few of ten passages as the labels allow, whatever their similarity. `maps` are those
    of the query's mode: `model.maps[model.mode_of(query)]`. Refused if no labelled question had a
    filter on the same keys as the query.
    """
    if maps.stopping_threshold is None:
        raise InputError(
            "this model has no guaranteed strategy: it takes a calibration on more labelled "
            "queries, usually a few hundred, and a recalibration drops it"
        )
    if query.filtered_by not in maps.filters:
        raise InputError(
            "the guarantee is for questions like the labelled ones, and none of these had a filter "
            "on the same keys; leave the guarantee out"
        )
    return Strategy(1, DEEPEST, maps.stopping_threshold, similarity_floor=-1.0, least_gain=0.0)


def check_floor(model: CalibratedReranker) -> None:
    """Refuse a similarity floor where passages have scores of other stages, and no cosine."""
    if model.source.kind.stages:
        raise InputError(
            "`similarity_floor`: the passages of this model have the scores of "
            f"{', '.join(model.source.kind.stages)}, and no similarity; use `sufficiency_threshold`"
        )


def near(passage: RankedPassage, strategy: Strategy) -> bool:
    """Whether a passage reaches the similarity floor; one that came with scores counts as near."""
    return bool(passage.scores) or not passage.dense < strategy.similarity_floor


def take(assessment: Assessment, strategy: Strategy = Strategy()) -> AdaptiveResult:
    """The first passages of an assessment, up to the k that the strategy asks for.

    That is the first k >= `min_k` at which the sufficiency reaches the threshold, else `max_k`
    without the last passages that each add less than `least_gain`. It is 0 if no passage is `near`.
    Of equal passages only the first is taken.

    `stop_reason`: `threshold`; `least_gain` if passages were left out, `no_more` if there are fewer
    than `max_k`, else `max_k`; `no_results` if none is near, `no_passages` if there is none.
    """
    passages = assessment.first(len(assessment.sufficiency_at))
    first, _ = distinct(passages)
    passages = [passages[i] for i in first]
    if not passages:
        return AdaptiveResult((), 0.0, NO_PASSAGES, assessment)
    if not any(near(passage, strategy) for passage in passages):
        return AdaptiveResult((), 0.0, NO_RESULTS, assessment)
    threshold = strategy.sufficiency_threshold or assessment.thresholds.sufficient
    sufficiency = [0.0, *(assessment.sufficiency_at[i] for i in first)]
    last = min(strategy.max_k, len(passages))
    for k in range(strategy.min_k, last + 1):
        if sufficiency[k] >= threshold:
            return AdaptiveResult(tuple(passages[:k]), sufficiency[k], THRESHOLD, assessment)
    k, reason = last, MAX_K if last == strategy.max_k else NO_MORE
    while k > strategy.min_k and sufficiency[k] - sufficiency[k - 1] < strategy.least_gain:
        k, reason = k - 1, LEAST_GAIN
    return AdaptiveResult(tuple(passages[:k]), sufficiency[k], reason, assessment)


def with_second_try(model: CalibratedReranker, first: Assessment) -> Assessment:
    """The first assessment, or one of the expanded query if it is not accepted.

    Raises:
        InputError: the model has no index, or the query brings its own passages.
    """
    if model.source.folder is None or first.mode != "search":
        raise InputError(
            "a second try searches the model's own index, and here the passages come from "
            "elsewhere; leave second tries out"
        )
    if first.accepted or first.asked_before or not len(first.ranking):
        return first
    candidates = expand_query(model.pipeline, first)
    scored = model.pipeline.score_by([candidates], model.maps["search"].policy)
    (second,) = model.assess_scored(scored, [first.ranking.query])
    if second.confidence <= first.confidence:
        return first
    return with_confidence(model, second, first.confidence)


def with_confidence(model: CalibratedReranker, found: Assessment, confidence: float) -> Assessment:
    """The same ranking at another confidence, with the other probabilities; without certificate."""
    maps = model.maps["search"]
    hazards = maps.hazard, maps.hazard_after_hit
    relevance, at = relevance_and_sufficiency(
        found.ranking, confidence, *hazards, maps.confidence.max_probability
    )
    return replace(
        found,
        relevance=relevance,
        confidence=confidence,
        sufficiency_at=tuple(at.tolist()),
        certified=False,
        context_certified=False,
        reasons=(*found.reasons, "found by a second try"),
    )


def expand_query(pipeline: Pipeline, first: Assessment) -> Candidates:
    """The candidates of the query expanded with words from its best passages.

    Only BM25 uses the added words; similarity, coverage and the cross-encoder use the query alone.
    """
    query, index, config = first.ranking.query, pipeline.index, pipeline.config
    best, _ = distinct(first.ranking.passages[:FEEDBACK])
    passages = [first.ranking.passages[i] for i in best]
    more = expansion_words(query.text, passages, first.relevance[best], index)
    text = " ".join([query.text, *more])
    stage = index.search(
        text,
        pipeline.encoder.encode([query.text])[0],
        pool=config.pool,
        count=config.candidates,
        rrf_k=config.rrf_k,
        where=query.where,
    )
    asked, all_words = (len(words(t, language=index.language)) for t in (query.text, text))
    stage = replace(stage, bm25=stage.bm25 * asked / max(1, all_words))
    found = [index.passage(row) for row in stage.rows]
    return pipeline.source.ranked_candidates(query, found, stage)


def expansion_words(
    query: str, passages: Sequence[Passage], relevance: Floats, lexicon: Lexicon
) -> list[str]:
    """The likeliest words of the relevance model that the query lacks, best first.

    `relevance` (n,) weighs the passages. At most `MOST_WORDS`, no more than the query has words,
    and none that is in more than a tenth of the passages.
    """
    asked = words(query, language=lexicon.language)
    weights: Counter[str] = Counter()
    spelled: dict[str, str] = {}  # the first spelling of each stem
    for passage, relevant in zip(passages, relevance.tolist(), strict=True):
        written = words(passage.full_text, language="none")
        stems = words(passage.full_text, language=lexicon.language)
        for word, stem in zip(written, stems, strict=True):
            spelled.setdefault(stem, word)
            weights[stem] += relevant / len(stems)
    best = (s for s, _ in weights.most_common() if s not in asked and lexicon.idf(s) >= FREQUENT)
    return [spelled[stem] for stem in islice(best, min(MOST_WORDS, len(asked)))]

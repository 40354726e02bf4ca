"""A second try for a question with low confidence: the query expanded with words of its passages.

It brings other passages only if it raises the confidence, and keeps the first confidence: the
higher one of two is too high. RM3: Lavrenko & Croft (SIGIR 2001), Abdul-Jaleel et al. (TREC 2004).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.relevance import relevance_and_sufficiency
from rerank.data.duplicates import distinct
from rerank.data.words import Lexicon, words
from rerank.errors import InputError
from rerank.types import Assessment, Candidates, Floats, Passage

FEEDBACK = 5  # passages whose words expand a query
MOST_WORDS = 10  # that are added
FREQUENT = math.log(9)  # the idf of a word that occurs in a tenth of all passages


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


def with_confidence(
    model: CalibratedReranker, assessment: Assessment, confidence: float
) -> Assessment:
    """The same ranking at another confidence, with the other probabilities; without certificate."""
    maps = model.maps["search"]
    hazards = maps.hazard, maps.hazard_after_hit
    relevance, at = relevance_and_sufficiency(
        assessment.ranking, confidence, *hazards, maps.confidence.max_probability
    )
    return replace(
        assessment,
        relevance=relevance,
        confidence=confidence,
        sufficiency_at=tuple(at.tolist()),
        certified=False,
        context_certified=False,
        reasons=(*assessment.reasons, "found by a second try"),
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
    return pipeline.source.ranked_candidates(
        query, [index.passage(row) for row in stage.rows], stage
    )


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

"""A few second tries for a question with low confidence: other candidates, same maps.

A try counts only if it raises the calibrated confidence. The maximum of several confidences is too
high, so the result has the confidence of the first try, or of a map fitted on labelled tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calibration.arrays import log_odds
from calibration.maps import LogisticMap
from rerank.assessment.decisions import accepted, as_uncalibrated, level, verdict
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.relevance import relevance_and_sufficiency
from rerank.data.equal_passages import distinct
from rerank.data.words import words
from rerank.errors import InputError, optional
from rerank.rag.expansion import expansion_words
from rerank.types import Assessment, Candidates, FirstStage, Floats, Query

FEEDBACK = 5  # passages whose words expand a query
APART = 10  # top passages of each stage that `search_stages_apart` takes


def expand_query(pipeline: Pipeline, first: Assessment) -> Candidates:
    """The candidates of the query expanded with words from its best passages.

    Only BM25 uses the added words; similarity, coverage and the cross-encoder use the query alone.
    """
    query, index, config = first.ranking.query, pipeline.index, pipeline.config
    best, _ = distinct(first.ranking.passages[:FEEDBACK])
    more = expansion_words(
        query.text,
        [first.ranking.passages[i] for i in best],
        first.relevance[best],
        index,
    )
    text = " ".join([query.text, *more])
    vector = pipeline.encoder.encode([query.text])[0]
    stage = index.search(
        text, vector, pool=config.pool, count=config.candidates, rrf_k=config.rrf_k
    )
    asked, all_words = (len(words(t, language=index.language)) for t in (query.text, text))
    return _candidates(pipeline, query, replace(stage, bm25=stage.bm25 * asked / max(1, all_words)))


def search_stages_apart(pipeline: Pipeline, first: Assessment) -> Candidates:
    """The top passages of each stage, merged: fusion may have ranked them too low."""
    query, config = first.ranking.query, pipeline.config
    vector = pipeline.encoder.encode([query.text])[0]
    stage = pipeline.index.search(
        query.text, vector, pool=config.pool, count=2 * config.pool, rrf_k=config.rrf_k
    )
    of_either = (stage.bm25_rank <= APART) | (stage.dense_rank <= APART)
    return _candidates(pipeline, query, stage.take(np.flatnonzero(of_either)))


Try = Callable[[Pipeline, Assessment], Candidates]
TRIES: dict[str, Try] = {"expanded": expand_query, "apart": search_stages_apart}


def with_second_tries(
    model: CalibratedReranker,
    first: Assessment,
    *,
    threshold: float | None = None,
    tries: Sequence[Try] = tuple(TRIES.values()),
    best_of: LogisticMap | None = None,
) -> Assessment:
    """The first assessment, or a better one if its confidence is below `threshold`.

    By default that is the model's threshold of accepted answers. The tries run in turn until one
    reaches it. A better one gets its confidence from `best_of` (see `fit_best_of`); without it,
    from the first assessment, which is lower.

    Raises:
        InputError: the model has no index, or the query brings its own passages.
    """
    if model.index_folder is None or first.mode != "search":
        raise InputError(
            "second tries search the model's own index, and here the passages come from elsewhere; "
            "leave second tries out"
        )
    if threshold is None:
        threshold = model.pipeline.config.thresholds.advisory
    best = first
    for one in tries if first.confidence < threshold and len(first.ranking) else ():
        found = assess_try(model, first, one)
        best = max(best, found, key=lambda a: a.confidence)
        if best.confidence >= threshold:
            break
    if best is first:
        return first
    confidence = first.confidence
    if best_of is not None:
        confidence = float(
            best_of.predict(best_of_inputs([first.confidence], [best.confidence]))[0]
        )
    return with_confidence(model, best, confidence)


def assess_try(model: CalibratedReranker, first: Assessment, one: Try) -> Assessment:
    """The assessment of the candidates of one try, by the model's own maps."""
    candidates = one(model.pipeline, first)
    scored = model.pipeline.score_by([candidates], model.maps["search"].policy)
    return model.assess_scored(scored, [first.ranking.query])[0]


def best_of_inputs(first: Sequence[float], best: Sequence[float]) -> Floats:
    """The inputs of the map of `fit_best_of`, shape (n, 2): the log-odds of both confidences."""
    return np.column_stack([log_odds(np.array(first)), log_odds(np.array(best))])


def fit_best_of(first: Sequence[float], best: Sequence[float], right: Sequence[int]) -> LogisticMap:
    """The map from the confidences of the first and the best try to P(the best one is right).

    Fit it on labelled questions for which a try counted: `right` is 1 if the top passage of the
    best try is right. Logistic regression, as for the other maps.
    """
    with optional():
        from calibration.fitting import fit_logistic

    return fit_logistic(best_of_inputs(first, best), right)


def with_confidence(
    model: CalibratedReranker, assessment: Assessment, confidence: float
) -> Assessment:
    """The same ranking at another confidence; the other probabilities follow from the hazards.

    It is not certified: a certificate holds only for the first try.
    """
    config, maps = model.pipeline.config, model.maps["search"]
    t = config.thresholds
    relevance, at = relevance_and_sufficiency(
        assessment.ranking,
        confidence,
        maps.hazard,
        maps.hazard_after_hit,
        maps.confidence.max_probability,
    )
    sufficiency = float(at[config.sufficiency_k - 1])
    found = replace(
        assessment,
        relevance=relevance,
        confidence=confidence,
        sufficiency=sufficiency,
        sufficiency_at=tuple(at.tolist()),
        level=level(confidence, t),
        verdict=verdict(sufficiency, t.sufficient, t.partial),
        accepted=accepted(confidence, t),
        certified=False,
        context_certified=False,
        reasons=(*assessment.reasons, "found by a second try"),
    )
    return found if found.calibrated else as_uncalibrated(found)


def _candidates(pipeline: Pipeline, query: Query, stage: FirstStage) -> Candidates:
    passages = [pipeline.index.passage(row) for row in stage.rows]
    return pipeline.ranked_candidates(query, passages, stage)

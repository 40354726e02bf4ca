"""Answers by a loaded model: its search, its index's words, and its cross-encoder as the judge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import ANSWERS
from rerank.config import Thresholds
from rerank.protocols import Record, unrecorded
from rerank.rag.answer.answerers import Answerer, ExtractiveAnswerer
from rerank.rag.answer.attribution import Judge
from rerank.rag.answer.bounded import BoundedAnswer, bounded_answer
from rerank.rag.answer.llm import LanguageModel
from rerank.rag.answer.quality import AnswerConfidence
from rerank.rag.settings import AnswerConfig, LanguageModelConfig
from rerank.types import Assessment, Query


def extractive(model: CalibratedReranker) -> ExtractiveAnswerer:
    """The answerer that needs no language model."""
    return ExtractiveAnswerer(model.pipeline.index)


def answerer_of(model: CalibratedReranker, config: LanguageModelConfig) -> Answerer:
    """The configured language model, or the extractive answerer if there is none."""
    return LanguageModel(config) if config.llm else extractive(model)


def answer_confidence_of(model: CalibratedReranker) -> AnswerConfidence | None:
    """The map in the model folder that gives answers a confidence; None if none was fitted."""
    if ANSWERS not in model.manifest["files"]:
        return None
    return AnswerConfidence.from_dict(model.files.json(ANSWERS))


def cross_encoder_judge(model: CalibratedReranker) -> Judge | None:
    """P(the evidence supports a claim): its relevance to the claim, by the model.

    The relevance map was fitted on labelled passages, and so was its threshold of 0.5. None for a
    model without such a map, whose passages come with scores or from another search system.
    """
    if "rerank" not in model.maps:
        return None

    def judge(claim: str, evidence: str) -> float:
        top = model.rerank(claim, model.source.plain_passages([evidence])).top
        return top.relevance if top else 0.0

    return judge


def answer(
    model: CalibratedReranker,
    queries: Sequence[Query],
    config: AnswerConfig = AnswerConfig(),
    *,
    thresholds: Thresholds | None = None,
    answerer: Answerer | None = None,
    record: Record = unrecorded,
) -> Iterator[BoundedAnswer]:
    """One answer per query, in order, by `answerer` or else by the one that `config` names.

    `thresholds` are those of the model by default.
    If the answerer fails on a question, the result's `error` says why, and nothing is recorded: it
    may be asked again. `record` is a journal's `rerank.journal.journal.Journal.record`.
    """
    fitted = answer_confidence_of(model)
    writes = answerer or answerer_of(model, config.language_model)
    for query in queries:
        start = time.perf_counter()
        assessment = model.assess([query])[0].by(thresholds)
        made = answer_assessed(model, assessment, config, writes, fitted)
        if not made.error:
            latency = time.perf_counter() - start
            answer_id = record(assessment, model=model.version, latency=latency, answer=made)
            made = replace(made, answer_id=answer_id)
        yield made


def answer_assessed(
    model: CalibratedReranker,
    assessment: Assessment,
    config: AnswerConfig,
    answerer: Answerer,
    fitted: AnswerConfidence | None,
) -> BoundedAnswer:
    """The answer to a query that the model has assessed, checked with its cross-encoder as judge.

    `fitted` gives it its own confidence.
    """
    judge = cross_encoder_judge(model)
    made = bounded_answer(assessment, answerer, model.pipeline.index, config, judge=judge)
    if fitted is None or made.refused or made.attribution_coverage is None:
        return made
    own = fitted.confidence(assessment.confidence, made.attribution_coverage)
    return replace(made, answer_confidence=own, answer_level=assessment.thresholds.level(own))

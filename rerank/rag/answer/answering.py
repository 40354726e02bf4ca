"""Answers by a loaded model: its search, its index's words, and its cross-encoder as the judge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rerank.advice.settings import AnswerConfig
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.model_folder import ANSWERS, MODEL_KIND, write_changed
from rerank.config import Thresholds
from rerank.protocols import Record, unrecorded
from rerank.rag.answer.answerers import Answerer, ExtractiveAnswerer
from rerank.rag.answer.attribution import Judge
from rerank.rag.answer.bounded import BoundedAnswer, bounded_answer
from rerank.rag.answer.llm import LanguageModel
from rerank.rag.answer.quality import AnswerConfidence, fit_answer_confidence
from rerank.rooms import offered
from rerank.storage.files import write_json
from rerank.storage.folder import output_folder
from rerank.types import Assessment, Query


def answer_confidence_of(model: CalibratedReranker) -> AnswerConfidence | None:
    """The map in the model folder that gives answers a confidence; None if none was fitted."""
    if ANSWERS not in model.manifest["files"]:
        return None
    return AnswerConfidence.from_dict(model.files.json(ANSWERS))


def cross_encoder_judge(model: CalibratedReranker) -> Judge | None:
    """P(the evidence supports a claim): its relevance to the claim, by the model.

    None for a model without a map of relevance, whose passages come with scores or from another
    search system. Of two models it is the first; where its reranker fails, words alone support.
    """
    if "rerank" not in model.maps:
        return None

    def judge(claim: str, evidence: str) -> float:
        asked = [model.source.plain_query(claim, [evidence])]
        scored = model.pipeline.run(asked, model.maps["rerank"].policy)
        found = model.assess_scored(scored, asked)[0]
        return found.top.relevance if found.top and not found.first_stage else 0.0

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

    `thresholds` are those of the model by default. If the answerer fails on a question, `error` of
    the result says why, and nothing is recorded. `record` is a journal's `Journal.record`.

    Raises:
        InputError, RetrieverError: as `CalibratedReranker.assess`.
    """
    fitted, language_model = answer_confidence_of(model), config.language_model
    if answerer is None and language_model.llm:
        answerer = LanguageModel(language_model)
    for query in queries:
        start = time.perf_counter()
        assessment = model.assess([query])[0].by(thresholds)
        made = answer_assessed(model, assessment, config, answerer, fitted)
        if not made.error:
            latency = time.perf_counter() - start
            answer_id = record(assessment, model=model.version, latency=latency, answer=made)
            made = replace(made, answer_id=answer_id)
        yield made


def answer_assessed(
    model: CalibratedReranker,
    assessment: Assessment,
    config: AnswerConfig,
    answerer: Answerer | None,
    fitted: AnswerConfidence | None,
) -> BoundedAnswer:
    """The answer to an assessed query: quotations without an `answerer`; `fitted` rates it."""
    words, judge = model.pipeline.index, cross_encoder_judge(model)
    made = bounded_answer(
        assessment, answerer or ExtractiveAnswerer(words), words, config, judge=judge
    )
    if fitted is None or not made.calibrated or made.refused or made.attribution_coverage is None:
        return made
    own = fitted.confidence(assessment.confidence, made.attribution_coverage)
    return replace(made, answer_confidence=own, answer_level=assessment.thresholds.level(own))


def recalibrate_answers(
    model: CalibratedReranker,
    journal: str,
    out: Path,
    *,
    newest: int | None = None,
    overwrite: bool = False,
) -> tuple[int, int]:
    """Write a copy of a model folder with a fitted confidence of answers: see `AnswerConfidence`.

    For each answer the journal holds the confidence of its retrieval, its attribution coverage, and
    whether it was right. For each question the newest labelled answer counts. Answers of another
    model are left out, as their confidence is another one; those of the model that this one was
    copied from by the same command are not.

    Returns:
        The number of answers that it was fitted on, and how many of them were right.
    """
    versions = [*model.manifest.get("answers", {}).get("versions", ()), model.version]
    rows = offered("answers of a journal")(journal, versions, newest)
    sure, covered = ([row[name] for row in rows] for name in ("confidence", "attribution"))
    right = [int(row["right"]) for row in rows]
    fitted = fit_answer_confidence(sure, covered, right)

    def change(folder: Path) -> Mapping[str, Any]:
        write_json(folder / ANSWERS, fitted.to_dict())
        fitted_on = {"labels": len(right), "right": sum(right), "versions": versions}
        return {**model.manifest, "answers": fitted_on}

    with output_folder(out, overwrite=overwrite, kind=MODEL_KIND):
        write_changed(model.files, out, change, without=ANSWERS, overwrite=overwrite)
    return len(right), sum(right)

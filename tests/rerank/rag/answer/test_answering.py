"""Answers of a real model: one a question, in order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from llm_endpoint import endpoint, status

from rerank.advice.settings import AnswerConfig, LanguageModelConfig
from rerank.assessment.model import CalibratedReranker
from rerank.config import Thresholds
from rerank.rag.answer.answering import answer, cross_encoder_judge
from rerank.rag.answer.sources import evidence_of
from rerank.types import Query

NONE = LanguageModelConfig()


def test_each_question_gets_its_answer(model: CalibratedReranker, questions: list[str]) -> None:
    """A quotation of its sources, or a refusal; in order."""
    queries = [Query(text, f"q{i}") for i, text in enumerate(questions)]
    told: list[Any] = [one.to_dict() for one in answer(model, queries)]
    assert [t["query_id"] for t in told] == [q.query_id for q in queries]
    texts = {p.doc_id: " ".join(p.full_text.split()) for p in model.pipeline.index.corpus}
    for one in told:
        assert one["model_calls"] == 0
        assert one["refused"] == (not one["sources"])
        for source in one["sources"]:
            assert " ".join(source["quote"].split()) in texts[source["doc_id"]]


def test_an_endpoint_that_fails_costs_one_answer(
    model: CalibratedReranker, questions: list[str]
) -> None:
    """Its error says why; the questions after it are asked all the same; it is not recorded."""
    pytest.importorskip("openai", reason="the extra [llm] is not installed")
    with endpoint(status(404)) as place:
        config = AnswerConfig(min_score=0, language_model=LanguageModelConfig(place.url, "m"))
        ours = partial(answer, model, thresholds=Thresholds(partial=0, sufficient=0))
        asked, recorded = [Query(q) for q in questions[:2]], list[Any]()
        found = list(ours(asked, config, record=lambda *a, **_: recorded.append(a) or "x"))
    assert not recorded
    assert not any(one.answer_id for one in found)
    assert len(place.requests) == 2
    assert all("status 404" in one.error and one.refused and not one.answer for one in found)
    assert all("error" in one.to_dict() for one in found)
    whole = list(ours([Query(q) for q in questions[:2]], replace(config, language_model=NONE)))
    assert [one.sufficiency for one in found] == [one.sufficiency for one in whole]


def test_the_judge_knows_a_passage_by_its_own_words(model: CalibratedReranker) -> None:
    """A probability; the first sentence of a passage is judged likelier than another's."""
    first, second = list(model.pipeline.index.corpus)[:2]
    judge = cross_encoder_judge(model)
    evidence = (evidence_of(p.title, p.text) for p in (first, second))
    own, foreign = (judge(first.text[:200], text) for text in evidence)
    assert 0 <= foreign < own <= 1

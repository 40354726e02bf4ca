"""A hostile long text costs a stage a bounded multiple of an ordinary one, in time and bytes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rerank.advice.explanation import explain
from rerank.advice.settings import AnswerConfig
from rerank.assessment.model import CalibratedReranker
from rerank.data.records import LONGEST_PASSAGE, LONGEST_QUERY, read_query
from rerank.data.words import READ
from rerank.inference.model_files import resolve
from rerank.inference.tokenizer import open_tokenizer
from rerank.retrieval.corpus import Corpus, in_document, write_passages
from rerank.retrieval.dense import windows
from rerank.types import Assessment, Passage, Query

RATIO = 60  # times an ordinary text of `READ` characters, an eighth as long
LEAST = 0.02  # seconds of CPU that an ordinary text counts at least
BYTES = 2**27  # that Python may hold at once
ASKED = "what is the median of arrays"
ORDINARY = "The median of the arrays is read along an axis. "
HOSTILE = {
    "letters": "a ",
    "question": "the median of arrays ",
    "sentences": ". median. ",
    "lines": "median\n",
    "spaces": " ",
    "unseen": "\u00ad",
    "marks": "e" + "\u0301" * 60,
    "one word": "x",
    "cjk": "\u4e2d",
    "ligatures": "\ufdfa",
    "fractions": "\u00bd",
}
Stage = Callable[[str], object]


def _rerank(model: CalibratedReranker, text: str) -> Assessment:
    passages = (Passage("0", "", text), Passage("1", "", "The median of one array."))
    return model.assess([Query(ASKED, passages=passages)])[0]


def _document(folder: Path, text: str) -> object:
    folder.mkdir(exist_ok=True)
    write_passages([Passage(str(i), "a", text) for i in range(3)], folder)
    return in_document(Corpus(folder), 1)


@pytest.fixture(scope="module")
def stages(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Stage]:
    """Every stage that a text passes through, as a function of the text."""
    model = CalibratedReranker.load(run.folder)
    tokenizer = open_tokenizer(resolve("minilm"), max_length=128)
    folder = tmp_path_factory.mktemp("corpus")

    def answered(text: str) -> object:
        answering = pytest.importorskip("rerank.rag.answer.answering")
        answerers = pytest.importorskip("rerank.rag.answer.answerers")
        by_words = answerers.ExtractiveAnswerer(model.pipeline.index)
        found = _rerank(model, text)
        return answering.answer_assessed(model, found, AnswerConfig(), by_words, None)

    return {
        "rerank": lambda text: _rerank(model, text),
        "search": lambda text: model.search(f"median {text}"[:LONGEST_QUERY]),
        "row": lambda text: model.assess(
            [read_query({"_id": "1", "query": ASKED, "passages": [text]})]
        ),
        "explain": lambda text: explain(model, _rerank(model, text)),
        "answer": answered,
        "windows": lambda text: windows([Passage("0", "", text)], tokenizer, 4),
        "document": lambda text: _document(folder, text),
    }


def _long(pattern: str, size: int) -> str:
    return (pattern * (size // len(pattern) + 1))[:size]


def _seconds(stage: Stage, text: str) -> float:
    start = time.process_time()
    stage(text)
    return time.process_time() - start


STAGES = ("rerank", "search", "row", "explain", "answer", "windows", "document")


@pytest.mark.parametrize("name", STAGES)
def test_a_long_text_costs_a_bounded_multiple(stages: Mapping[str, Stage], name: str) -> None:
    """Of the CPU time that an ordinary text takes; texts differ, so that no cache has them."""
    stage = stages[name]
    stage("the first call loads the networks")
    usual = min(_seconds(stage, f"{i} {_long(ORDINARY, READ)}") for i in range(2))
    allowed = RATIO * max(usual, LEAST)
    took = {
        kind: _seconds(stage, f"{name} {_long(pattern, LONGEST_PASSAGE - 10)}")
        for kind, pattern in HOSTILE.items()
    }
    assert {kind: s for kind, s in took.items() if s > allowed} == {}, allowed


@pytest.mark.parametrize("name", STAGES)
def test_a_long_text_takes_bounded_memory(stages: Mapping[str, Stage], name: str) -> None:
    """At once, beside the text itself."""
    stages[name]("the first call loads the networks")
    for pattern in ("a ", "the median of arrays ", "\ufdfa"):
        text = f"memory of {name} {_long(pattern, LONGEST_PASSAGE - 20)}"
        tracemalloc.start()
        try:
            stages[name](text)
            assert tracemalloc.get_traced_memory()[1] < BYTES
        finally:
            tracemalloc.stop()

"""A file of answers: whole or not at all, and resumed if interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from llm_endpoint import endpoint, says, status

from rerank.advice.settings import AnswerConfig, LanguageModelConfig
from rerank.assessment.model import CalibratedReranker
from rerank.config import Thresholds
from rerank.data.labelled_set import LabelledSet
from rerank.errors import FolderError, InputError
from rerank.rag.answer.answering import answer
from rerank.rag.answer_file import AnswerFileSummary, answer_file
from rerank.types import Assessment, Passage, Query


@pytest.fixture(scope="module")
def model(run: Any) -> CalibratedReranker:
    return CalibratedReranker.load(run.folder)


@pytest.fixture(scope="module")
def queries(small: LabelledSet) -> list[Query]:
    """Four real ones."""
    return list(small.queries.values())[:4]


class Recorded(list[str]):
    """The ids of the queries that were answered; the run stops at the `last` one."""

    def __init__(self, last: int = 99) -> None:
        self.last = last

    def __call__(self, found: Assessment, **_: object) -> str:
        """Record one, as a journal does."""
        self.append(found.ranking.query.query_id)
        if len(self) == self.last:
            raise KeyboardInterrupt
        return ""


def interrupted(model: CalibratedReranker, queries: list[Query], out: Path) -> None:
    """Two of the answers are made."""
    with pytest.raises(KeyboardInterrupt):
        answer_file(model, queries, out, overwrite=True, record=Recorded(3))


def test_an_interrupted_run_resumes(
    model: CalibratedReranker, queries: list[Query], tmp_path: Path
) -> None:
    """What is done is not done again; the old file stays until the new one is whole."""
    out, rest = tmp_path / "answers.jsonl", Recorded()
    out.write_text("old")
    interrupted(model, queries, out)
    assert out.read_text() == "old"
    done = answer_file(model, queries, out, overwrite=True, record=rest)
    assert done == AnswerFileSummary(answers=4, failed=0, resumed=2)
    assert rest == [q.query_id for q in queries[2:]]
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert told == [one.to_dict() for one in answer(model, queries)]
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(FolderError, match="--overwrite"):
        answer_file(model, queries, out)


def test_a_query_is_answered_from_its_own_passages(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `rescore` does with the same file; `--json` prints one object."""
    asked, out = tmp_path / "queries.jsonl", tmp_path / "answers.jsonl"
    own = ["The median is the middle value of a sorted sample.", "Another text."]
    asked.write_text(json.dumps({"_id": "1", "query": "what is a median?", "passages": own}))
    options = ("--partial=0", "--sufficient=0", "--min-score=0", "--similarity-floor=-1")
    assert call("answer", run.folder, "--queries", asked, "--out", out, "--json", *options) == 0
    assert json.loads(capsys.readouterr().out)["answers"] == 1
    found = json.loads(out.read_text())
    assert {source["doc_id"] for source in found["sources"]} <= {"0", "1"}
    assert "middle value" in found["answer"]


def test_work_of_something_else_is_not_resumed(
    model: CalibratedReranker, queries: list[Query], tmp_path: Path
) -> None:
    """Unless it is to be thrown away."""
    out, other = tmp_path / "answers.jsonl", AnswerConfig(min_score=0.1)
    interrupted(model, queries, out)
    with pytest.raises(InputError, match=r"another configuration; .*--restart"):
        answer_file(model, queries, out, other)
    with pytest.raises(InputError, match="begun with another input;"):
        answer_file(model, queries[1:], out)
    done = answer_file(model, queries, out, other, restart=True)
    assert (done.answers, done.resumed) == (4, 0)


def test_queries_that_the_model_cannot_answer_are_refused_first(
    model: CalibratedReranker, queries: list[Query], tmp_path: Path
) -> None:
    """All of them, and before any is answered: what was answered before would be thrown away."""
    scored = Query("x", "lists", passages=(Passage("a", "", "t"),), scores={"b": np.array([1.0])})
    recorded, expected = Recorded(), r"2 bad lines; .*query 2, 'lists': this.*\n.*query 4, 'empty'"
    asked = [queries[0], scored, queries[1], Query(" ", "empty")]
    with pytest.raises(InputError, match=f"(?s){expected}"):
        answer_file(model, asked, tmp_path / "answers.jsonl", record=recorded)
    assert not recorded
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"query 1, .* has no index to search"):
        answer_file(CalibratedReranker.load("default"), queries, tmp_path / "answers.jsonl")


def test_a_resumed_run_tries_again_what_failed(
    model: CalibratedReranker, queries: list[Query], tmp_path: Path
) -> None:
    """An answer that the language model did not give is asked for again; the order stays.

    It is recorded once, when it is given.
    """
    pytest.importorskip("openai", reason="the extra [llm] is not installed")
    out, rest = tmp_path / "answers.jsonl", Recorded()
    before = Recorded(2)
    with endpoint(status(404), says("It is so [S1].")) as place:
        language_model = LanguageModelConfig(place.url, "m")
        config = AnswerConfig(min_score=0, language_model=language_model)
        t = Thresholds(partial=0, sufficient=0)
        with pytest.raises(KeyboardInterrupt):
            answer_file(model, queries, out, config, thresholds=t, record=before)
        with pytest.raises(InputError, match="another configuration;"):
            answer_file(model, queries, out, config)
        done = answer_file(model, queries, out, config, thresholds=t, record=rest)
    assert done == AnswerFileSummary(answers=4, failed=0, resumed=1)
    assert before == [queries[row].query_id for row in (1, 2)]  # it was killed at the second
    assert rest == [queries[row].query_id for row in (0, 2, 3)]
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["query_id"] for one in told] == [q.query_id for q in queries]
    assert not any("error" in one for one in told)

"""`rerank search`: what it prints and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import call, refused

from rerank.commands.options import typed_queries
from rerank.config import two_digits
from rerank.data.labelled_set import LabelledSet

Run = Any  # the session's run, see conftest


@pytest.mark.parametrize("question", ["", "   "])
def test_an_empty_question_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    """There is nothing to search for."""
    assert "the query is empty" in refused(capsys, "search", run.folder, question)


@pytest.mark.parametrize(
    "command", ["search", "answer", "rescore", "evaluate", "model export", "serve"]
)
def test_another_manifest_is_refused(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """`--manifest-sha256` is taken by every command that opens a model."""
    queries, out = small_folder / "queries.jsonl", tmp_path / "out.jsonl"
    rest = {
        "rescore": [queries, "--out", out],
        "evaluate": [small_folder],
        "model export": ["--out", out],
        "serve": ["--port", "0"],
    }.get(command, ["a question"])
    pin = ["--manifest-sha256", "0" * 64]
    assert f"expected {'0' * 64}" in refused(capsys, *command.split(), run.folder, *rest, *pin)


def test_search_prints_an_answer_a_question(
    run: Run, small: LabelledSet, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each question is answered with confidence, level and passages, in the order asked."""
    questions = [q.text for q in run.plan.report.items[:2]]
    assert call("search", run.folder, *questions) == 0
    out = capsys.readouterr().out
    assert out.index(questions[0]) < out.index(questions[1])
    assert len(re.findall(r"confidence \d\.\d\d  (HIGH|MEDIUM|LOW|VERY_LOW)", out)) == 2
    assert sum(f"  {d}  " in out for d in small.corpus) >= 3


@pytest.mark.parametrize(
    ("probability", "shown"),
    [
        (0.3952, "0.39"),
        (0.4, "0.40"),
        (0.6999, "0.69"),
        (0.7, "0.70"),
        (0.855, "0.85"),
        (0.859, "0.85"),
        (0.58, "0.58"),
        (1, "1.00"),
    ],
)
def test_no_probability_is_rounded_up_to_a_threshold(probability: float, shown: str) -> None:
    """Beside "advisory only" 0.6999 must not be shown as 0.70."""
    assert two_digits(probability) == shown


def test_search_prints_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` gives one object a question, with the fields of a prediction."""
    question = run.plan.report.items[0].text
    assert call("search", run.folder, question, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["query"] == question
    assert {"confidence", "sufficiency", "level", "verdict", "ranking"} <= set(found)


def test_a_question_of_broken_bytes_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A question that the shell handed over as invalid UTF-8 is bad input, and no traceback."""
    refused(capsys, "search", run.folder, "caf\udce9 hours")


@pytest.mark.parametrize("command", ["search", "search --explain", "search --passages", "answer"])
def test_a_model_without_segments_takes_none(
    run: Run, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command that takes a question refuses the segment."""
    told = refused(capsys, *command.split(), run.folder, "median", "--segment=en")
    assert "has no segments, so none is called 'en'; calibrate it with --segment-by" in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["median", "--restart"], "--restart: only with --out"),
        (["--queries=q.jsonl", "--out=a.jsonl", "--segment=en"], "--segment: only with QUERY"),
        (["--queries=q.jsonl", "--out=a.PQ"], "a.PQ: expected a name that ends with .jsonl"),
    ],
)
def test_answer_refuses_options_of_the_other_kind(
    run: Run, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would be ignored; and a file of answers would have a name that belies it."""
    assert words in refused(capsys, "answer", run.folder, *options)


def test_a_segment_without_labels_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped one would change nothing, silently."""
    model: Any = SimpleNamespace(
        segment_by="language",
        segments={"english"},
        of_segment=lambda name: {"language": name},
    )
    (query,) = typed_queries(model, ["median"], "englisch")
    assert query.metadata == {"language": "englisch"}
    assert "did you mean 'english'" in capsys.readouterr().err
    typed_queries(model, ["median"], "english")
    assert capsys.readouterr().err == ""

"""`rerank search --explain`, `--passages`, `rerank answer`: what they print, write and refuse."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from command_line import call, refused
from llm_endpoint import endpoint, says, status

from rerank.advice.adaptive import LEAST_GAIN, MAX_K, NO_MORE, NO_PASSAGES, NO_RESULTS, THRESHOLD
from rerank.commands.use import STOPPED

Run = Any  # the session's run, see conftest


@pytest.fixture
def question(run: Run) -> str:
    return str(run.plan.report.items[0].text)


def test_explain_prints_a_headline_and_signals_a_question(
    run: Run, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every signal, in words; `--json` has the same."""
    line = r"^RAG Confidence: (HIGH|MEDIUM|LOW|VERY_LOW) - .+ \(\d\.\d\d\)$"
    assert call("search", "--explain", run.folder, question, question) == 0
    full = capsys.readouterr().out
    assert len(re.findall(line, full, re.MULTILINE)) == full.count("stage_agreement") == 2
    assert call("search", "--explain", run.folder, question, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headline"] == full.splitlines()[0]
    assert found["query"] == question


def test_retrieve_hands_on_as_many_as_needed(
    run: Run, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By numbers, or by the name of a strategy."""
    assert call("search", "--passages", run.folder, question, "--max-k=2", "--second-tries") == 0
    assert re.match(
        r"[12] passages?, sufficiency 0\.\d\d [A-Z]+, stopped by", capsys.readouterr().out
    )
    assert call("search", "--passages", run.folder, question, "--strategy=debugging", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["k"] == len(found["passages"])
    assert found["stop_reason"] in STOPPED


def test_every_reason_has_its_words() -> None:
    """In the terminal and on the page."""
    reasons = {THRESHOLD, LEAST_GAIN, MAX_K, NO_MORE, NO_RESULTS, NO_PASSAGES}
    assert set(STOPPED) == reasons
    page = files("rerank.rag").joinpath("static", "ask.js").read_text(encoding="utf-8")
    told = page.partition("const STOPPED = {")[2].partition("}")[0]
    assert set(re.findall(r"^ +(\w+):", told, re.MULTILINE)) == reasons


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--strategy=debuging"], "did you mean 'debugging'"),
        (["--strategy=debugging", "--max-k=8"], "--max-k: not with --strategy"),
        (["--guaranteed", "--second-tries"], "--second-tries: not with --guaranteed"),
        (["--guaranteed", "--min-k=1"], "--min-k: not with --guaranteed"),
        (["--explain"], "one of them"),
        (["--strategies=mine.toml"], "say with --strategy"),
        (["--min-k=9"], "--min-k"),
    ],
)
def test_retrieve_refuses_what_it_cannot_follow(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is loaded."""
    assert words in refused(capsys, "search", "--passages", "none", "a question", *options)


@pytest.mark.parametrize("option", ["--min-k=1", "--guaranteed", "--strategy=debugging"])
def test_how_many_passages_is_only_asked_with_passages(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it would be ignored."""
    name = option.partition("=")[0]
    assert f"{name}: only with --passages" in refused(capsys, "search", "none", "query", option)


def test_answer_prints_the_answer_with_its_sources(
    run: Run, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quotation, and how sure it is; where nothing is sure enough, the refusal alone."""
    assert call("answer", run.folder, question, "--partial=0", "--min-score=0") == 0
    told = capsys.readouterr().out
    assert "\nSources:\n- " in told
    assert re.search(r"\nSufficiency, P\(a source holds the answer\): 0\.\d\d [A-Z_]+\n$", told)
    assert call("answer", run.folder, question, "--partial=1", "--sufficient=1") == 0
    assert capsys.readouterr().out == "No supporting documentation found in indexed sources.\n"
    assert call("answer", run.folder, question, "--partial=1", "--sufficient=1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["refused"]
    assert found["answer"] == "No supporting documentation found in indexed sources."


def test_an_answer_shows_no_level_that_it_does_not_reach(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `search` and `assess` of the same confidence."""
    answering = pytest.importorskip("rerank.rag.answer.answering")
    bounded = pytest.importorskip("rerank.rag.answer.bounded")
    made = bounded.BoundedAnswer("q", "So it is.", False, 0.6, "LOW", False, 0.69993, "PARTIAL")
    monkeypatch.setattr(answering, "answer", lambda *_, **__: iter([made]))
    assert call("answer", run.folder, "how is it?") == 0
    assert capsys.readouterr().out.endswith("holds the answer): 0.69 PARTIAL\n")


def test_answer_by_a_language_model(
    run: Run, question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of questions: no call where the gate refuses, one line per question."""
    pytest.importorskip("openai", reason="the extra [llm] is not installed")
    queries, out = tmp_path / "queries.jsonl", tmp_path / "answers.jsonl"
    queries.write_text(json.dumps({"_id": "a", "text": question}) + "\n")
    with endpoint(says("Nothing of this is known [S1].")) as place:
        given = ("answer", run.folder, "--queries", queries, "--out", out, "--overwrite")
        model = (f"--llm={place.url}", "--llm-model=m")
        assert call(*given, *model, "--partial=1", "--sufficient=1") == 0
        assert not place.requests
        assert call(*given, *model, "--partial=0", "--min-score=0") == 0
    found = json.loads(out.read_text())
    assert (found["query_id"], found["refused"]) == ("a", True)
    assert found["model_calls"] == len(place.requests) == 2


def test_a_failing_language_model_is_exit_code_3(
    run: Run, question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence; of a file, each line says so itself."""
    pytest.importorskip("openai", reason="the extra [llm] is not installed")
    queries, out = tmp_path / "queries.jsonl", tmp_path / "answers.jsonl"
    queries.write_text(json.dumps({"_id": "a", "text": question}) + "\n")
    with endpoint(status(401)) as place:
        given = (f"--llm={place.url}", "--llm-model=m", "--partial=0", "--min-score=0")
        assert call("answer", run.folder, question, *given) == 3
        assert "status 401" in capsys.readouterr().err
        assert call("answer", run.folder, "--queries", queries, "--out", out, *given) == 3
    assert "status 401" in json.loads(out.read_text())["error"]


def test_answers_never_replace_their_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor with `--overwrite`, which is about answers."""
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "a", "text": "what?"}\n')
    given = ("--queries", queries, "--out", queries, "--overwrite")
    assert "would replace the queries" in refused(capsys, "answer", "none", *given)
    assert "what?" in queries.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "expected a QUERY"),
        (["a question", "--out=x"], "go together"),
        (["a question", "--llm=http://localhost/v1"], "--llm-model"),
        (["a question", "--min-chunks=0"], "--min-chunks"),
    ],
)
def test_answer_refuses_what_it_cannot_follow(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is loaded."""
    assert words in refused(capsys, "answer", "none", *options)

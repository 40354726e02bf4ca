"""The command line: help with an example, exit codes, one sentence for bad input."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import run_python

from rerank.arguments import BANDS, OPTIONS, parser
from rerank.cli import RUNS, main
from rerank.config import Config
from rerank.data.labelled_set import LabelledSet

Run = Any  # the session's run, see conftest
HEAVY = {"torch", "sklearn", "mlflow", "pandas", "matplotlib", "transformers", "onnxruntime"}
HEAVY |= {"sentence_transformers", "scipy", "rank_bm25"}


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command that runs something, with its parser, from the parser's own list."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield words, parser
    for group in groups:
        for name, below in group.choices.items():
            yield from commands(below, (*words, name))


COMMANDS = dict(commands(parser(RUNS)))


def call(*arguments: object) -> int:
    """The exit code of the command, argparse's own included."""
    try:
        return main([str(a) for a in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The sentence on stderr of a command that must be refused with exit code 2."""
    assert call(*arguments) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    found = [line for line in err.splitlines() if re.match(r"rerank( \w+)*: error: ", line)]
    assert len(found) == 1, err
    return found[0]


# --- help -------------------------------------------------------------------------------------


def test_the_commands_are_those_of_the_readme() -> None:
    """Nothing is missing of what a user was promised."""
    promised = {"dataset build", "dataset check", "index", "finetune", "calibrate"}
    promised |= {"evaluate", "search", "rescore"}
    assert promised <= {" ".join(words) for words in COMMANDS}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` exits with 0 and explains every option."""
    assert call(*words, "--help") == 0
    out = capsys.readouterr().out
    assert "example:" in out
    for action in COMMANDS[words]._actions:
        assert action.help, f"{action.dest} says nothing"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_example_of_a_command_can_be_parsed(words: tuple[str, ...]) -> None:
    """The example in the help is one that the parser takes, for this very command."""
    found = re.findall(r"^ +rerank (.+)$", COMMANDS[words].epilog or "", re.MULTILINE)
    assert found
    for line in found:
        parts = shlex.split(line)
        assert tuple(parts[: len(words)]) == words
        options = parser(RUNS).parse_args(parts)
        assert options.run is COMMANDS[words].get_default("run")


def test_help_is_light() -> None:
    """`rerank --help` imports none of the heavy libraries."""
    code = """
import json, sys
from rerank.cli import main
try:
    main(["--help"])
except SystemExit:
    print(json.dumps(sorted({m.split(".")[0] for m in sys.modules})))
"""
    modules = set(json.loads(run_python(code).splitlines()[-1]))
    assert "rerank" in modules
    assert not modules & HEAVY


def test_every_option_has_the_default_of_the_configuration() -> None:
    """What `calibrate` does without options is what `Config()` says."""
    options = parser(RUNS).parse_args(["calibrate", "set", "--out", "model"])
    kept = Config().to_dict()
    assert {n: getattr(options, n) for n in OPTIONS} == {n: kept[n] for n in OPTIONS}
    assert {n: getattr(options, n) for n in BANDS} == kept["thresholds"]


# --- bad input --------------------------------------------------------------------------------


def test_no_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A bare `rerank` shows how it is used."""
    assert call() == 2
    assert "usage: rerank" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("dataset", "check", "NOWHERE"),
        ("index", "NOWHERE", "--out", "OUT"),
        ("finetune", "NOWHERE", "--out", "OUT"),
        ("calibrate", "NOWHERE", "--out", "OUT"),
        ("evaluate", "MODEL", "NOWHERE"),
        ("evaluate", "NOWHERE", "SET"),
        ("search", "NOWHERE", "a question"),
        ("rescore", "NOWHERE", "SET/queries.jsonl", "--out", "OUT"),
        ("rescore", "MODEL", "NOWHERE", "--out", "OUT"),
    ],
)
def test_a_missing_folder_is_named(
    run: Run,
    small_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    """Exit code 2 and one sentence that names what is not there; nothing is written."""
    places = {"NOWHERE": tmp_path / "nowhere", "OUT": tmp_path / "out", "MODEL": run.folder}
    places |= {"SET": small_folder, "SET/queries.jsonl": small_folder / "queries.jsonl"}
    message = refused(capsys, *(places.get(a, a) for a in arguments))
    assert str(tmp_path / "nowhere") in message
    assert not (tmp_path / "out").exists()


def test_broken_json_is_told_with_its_lines(
    tmp_path: Path, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every bad line stands on stderr with file and line number."""
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d"\n{"_id": "d", "text": "x"}\n[]\n')
    (tmp_path / "queries.jsonl").write_text("nonsense\n")
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert call("dataset", "check", tmp_path) == 2
    err = capsys.readouterr().err
    for place in ("corpus.jsonl:1", "corpus.jsonl:3", "queries.jsonl:1"):
        assert f"{tmp_path / place}: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--encoder", "--reranker"])
def test_an_unknown_model_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """The sentence names the model asked for and the bundled ones."""
    out = tmp_path / "model"
    arguments = ("calibrate", small_folder, "--out", out, "--work", tmp_path, option, "minilmm")
    message = refused(capsys, *arguments)
    assert "'minilmm'" in message
    assert "minilm-reranker" in message
    assert not out.exists()


def test_a_hub_model_without_a_hub_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the hub cannot be reached the sentence says which model it did not give."""
    message = refused(
        capsys, "index", small_folder, "--out", tmp_path / "i", "--encoder", "nobody/nothing@v1"
    )
    assert "nobody/nothing@v1" in message


@pytest.mark.parametrize("command", ["calibrate", "index"])
def test_a_folder_that_exists_is_not_replaced(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The sentence names the folder, and what is in it stays, `--overwrite` or not."""
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("ten years of work")
    for more in ((), ("--overwrite",)):
        assert str(out) in refused(capsys, command, small_folder, "--out", out, *more)
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_a_model_is_not_replaced_by_an_index(
    run: Run, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--overwrite` replaces a folder of the same kind only."""
    before = (run.folder / "manifest.json").read_bytes()
    message = refused(capsys, "index", small_folder, "--out", run.folder, "--overwrite")
    assert str(run.folder) in message
    assert (run.folder / "manifest.json").read_bytes() == before


def test_an_unknown_split_is_refused(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the splits that there are."""
    message = refused(
        capsys, "evaluate", run.folder, small_folder, "--split", "tset", "--work", tmp_path
    )
    assert "'tset'" in message
    assert "'test'" in message


def test_a_split_without_queries_is_refused(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty split file is a split, and there is nothing in it to measure."""
    folder = copied_set(small_folder, tmp_path)
    (folder / "splits/later.txt").write_text("")
    refused(capsys, "evaluate", run.folder, folder, "--split", "later", "--work", tmp_path)


@pytest.fixture
def few(small_folder: Path, tmp_path: Path) -> Path:
    """The small set with five passages and no right ones."""
    folder = copied_set(small_folder, tmp_path)
    lines = (folder / "corpus.jsonl").read_text().split("\n")[:5]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    for path in folder.glob("qrels/*.tsv"):
        path.write_text("")
    return folder


def copied_set(small_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_folder, tmp_path / "set"))


@pytest.mark.parametrize("question", ["", "   "])
def test_an_empty_question_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str], question: str
) -> None:
    """There is nothing to search for."""
    assert "the query is empty" in refused(capsys, "search", run.folder, question)


def test_an_unknown_bundled_set_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the sets that can be built."""
    message = refused(capsys, "dataset", "build", "pydatta", "--out", tmp_path / "set")
    assert "'pydatta'" in message
    assert "pydata_questions" in message


@pytest.mark.parametrize(
    "options",
    [
        ("--calibrator", "spline"),
        ("--rank-by", "hope"),
        ("--high", "0.1"),
        ("--medium", "nan"),
        ("--rerank-depth", "0"),
        ("--pool", "-5"),
        ("--pool", "many"),
        ("--no-such-option",),
    ],
)
def test_options_out_of_range_are_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """A value that no run can use is told at once, with exit code 2 and no traceback."""
    out = tmp_path / "model"
    assert call("calibrate", small_folder, "--out", out, "--work", tmp_path, *options) == 2
    err = capsys.readouterr().err
    assert "error: " in err
    assert "Traceback" not in err
    assert not out.exists()


def test_an_unknown_language_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A language without a stemmer is bad input, and no traceback."""
    out = tmp_path / "index"
    assert "klingon" in refused(
        capsys, "index", small_folder, "--out", out, "--language", "klingon"
    )


def test_a_negative_bound_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--max-queries -40` is bad input, and not "all but the last forty"."""
    out = tmp_path / "model"
    given = ("calibrate", small_folder, "--out", out, "--max-queries", "-40", "--work", tmp_path)
    assert "-40" in refused(capsys, *given)


@pytest.mark.parametrize("limit", ["many", "-3", "1.5"])
def test_a_limit_that_is_no_number_is_refused(
    small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    """`finetune FOLDER:LIMIT` takes a count of queries."""
    given = f"{small_folder}:{limit}"
    assert given in refused(capsys, "finetune", given, "--out", tmp_path / "out")


def test_a_metadata_that_no_query_has_is_refused(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt `--group-by` would group nothing; the sentence names what the queries have."""
    given = ("calibrate", few, "--out", tmp_path / "out", "--group-by", "artcle")
    message = refused(capsys, *given)
    assert "'artcle'" in message
    assert "answerable" in message
    assert not (tmp_path / "out").exists()


def test_finetuning_on_an_unknown_split_is_refused(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the splits that there are."""
    given = ("finetune", few, "--out", tmp_path / "out", "--split", "tset")
    message = refused(capsys, *given)
    assert "'tset'" in message
    assert "'test'" in message


def test_an_unknown_split_is_refused_before_the_work(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt split does not cost the indexing of a corpus."""
    refused(capsys, "finetune", few, "--out", tmp_path / "out", "--split", "tset")
    assert not (tmp_path / "out").exists()


# --- what the commands print and write --------------------------------------------------------


def test_check_counts_what_is_there(
    small: LabelledSet, small_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dataset check` prints the counts and the digest of the set."""
    assert call("dataset", "check", small_folder) == 0
    out = capsys.readouterr().out
    printed = dict(re.findall(r"^(\w+)\s+(\d+)$", out, re.MULTILINE))
    assert printed["passages"] == str(len(small.corpus))
    assert printed["test_queries"] == str(len(small.splits["test"]))
    assert printed["groups"] == str(len({small.group(q) for q in small.queries}))
    assert small.digest() in out


def test_calibrating_again_says_that_it_is_there(
    run: Run,
    config: Config,
    small_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command finds its model, prints the report, does nothing, and names its run."""
    kept = config.to_dict()
    options = [f"--{n.replace('_', '-')}={kept[n]}" for n in OPTIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rerank.arguments.Config", lambda: config)  # `folds` is not an option
        code = call("calibrate", small_folder, "--out", run.folder, "--work", run.work, *options)
    assert code == 0
    out = capsys.readouterr().out
    assert run.outcome.report in out
    assert "already" in out
    assert f"already tracked as run {run.outcome.run.run_id}" in out
    assert f"models:/{run.outcome.run.model_name}/{run.outcome.run.model_version}" in out


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


def test_search_prints_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` gives one object a question, with the fields of a prediction."""
    question = run.plan.report.items[0].text
    assert call("search", run.folder, question, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["question"] == question
    assert {"confidence", "sufficiency", "level", "verdict", "ranking"} <= set(found)


def test_rescore_writes_a_line_a_query(
    run: Run, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the queries' order, counted; the same by the folder and by MLflow's name for it."""
    queries, out = tmp_path / "queries.jsonl", tmp_path / "predictions.jsonl"
    queries.write_text("\n".join((small_folder / "queries.jsonl").read_text().split("\n")[4::-1]))
    arguments = ("rescore", run.folder, queries, "--out", out, "--work", run.work)
    assert call(*arguments) == 0
    assert "5 predictions" in capsys.readouterr().out
    asked = [json.loads(line)["_id"] for line in queries.read_text().splitlines()]
    found = [json.loads(line)["query_id"] for line in out.read_text().splitlines()]
    assert found == asked
    tracked, again = run.outcome.run, tmp_path / "again.jsonl"
    named = f"models:/{tracked.model_name}/{tracked.model_version}"
    assert call("rescore", named, queries, "--out", again, "--work", run.work) == 0
    assert again.read_bytes() == out.read_bytes()


def test_rescore_tells_rejected_rows_by_its_exit_code(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 where rows were rejected, with their count and file; 2 with `--strict`, at the first."""
    queries, out = tmp_path / "queries.jsonl", tmp_path / "predictions.parquet"
    queries.write_text('{"_id": "a", "text": "sort an array"}\n{"_id": "b"}\n')
    arguments = ("rescore", run.folder, queries, "--out", out, "--work", run.work)
    assert call(*arguments) == 3
    printed = capsys.readouterr().out
    assert f"{out}: 1 predictions" in printed
    assert f"{out}.rejected.jsonl: 1 rows were rejected" in printed
    assert "queries.jsonl:2: 'text' is missing" in refused(capsys, *arguments, "--strict")


def test_index_writes_a_folder(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`index` writes a folder and counts the passages."""
    out = tmp_path / "index"
    assert call("index", few, "--out", out, "--encoder-max-length", "32") == 0
    assert "5 passages indexed" in capsys.readouterr().out
    assert (out / "manifest.json").is_file()


def test_a_question_of_broken_bytes_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A question that the shell handed over as invalid UTF-8 is bad input, and no traceback."""
    refused(capsys, "search", run.folder, "caf\udce9 hours")

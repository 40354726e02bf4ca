"""A file of predictions is measured by the functions that measure a model; so does an outsider."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call, refused

from rerank.data.labelled_set import LabelledSet
from rerank.errors import InputError
from rerank.jobs.evaluate import measure_predictions, read_predictions
from rerank.report.benchmark import Answers, Asked, figures

PLACES = (above / "shared/judge/judge.py" for above in Path(__file__).parents)
JUDGE = next(filter(Path.is_file, PLACES), None)
Line = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of 120 queries, of which 30 have no answer; grades of 1 and 2."""
    rng, folder = np.random.default_rng(3), tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "splits").mkdir()
    corpus = [{"_id": f"d{i}", "title": f"title {i}", "text": f"word{i} {i}"} for i in range(240)]
    queries = [{"_id": f"q{i}", "text": f"question number {i} is it"} for i in range(120)]
    qrels = [f"q{i}\td{2 * i}\t{rng.integers(1, 3)}" for i in range(90)]
    qrels += [f"q{i}\td{2 * i + 1}\t1" for i in range(40)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *qrels, ""]))
    (folder / "splits/test.txt").write_text("\n".join(row["_id"] for row in queries) + "\n")
    return folder


@pytest.fixture
def lines() -> list[Line]:
    """Predictions that know something, with ties; `ranking` as ids and as objects."""
    rng, made = np.random.default_rng(4), []
    for i in range(120):
        right = i < 90 and rng.random() < 0.7
        ranking: list[Any] = [f"d{n}" for n in rng.permutation(240) if n != 2 * i][:5]
        ranking = [f"d{2 * i}", *ranking] if right else [*ranking, f"d{2 * i}"]
        p = round(float(rng.beta(6, 2) if right else rng.beta(3, 4)), 2)
        named = [{"doc_id": one} for one in ranking] if i % 2 else ranking
        made.append({"query_id": f"q{i}", "confidence": p, "ranking": named})
    return made


def written(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.skipif(JUDGE is None, reason="the independent judge is not here")
def test_the_figures_are_those_of_an_independent_judge(
    folder: Path, lines: list[Line], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To rounding; what it draws at random, to the size of its draws."""
    file = written(tmp_path / "theirs.jsonl", lines)
    ran = subprocess.run(
        [sys.executable, str(JUDGE), folder, "test", file, "--json"],
        capture_output=True,
        check=True,
    )
    judged = json.loads(ran.stdout)
    assert call("evaluate", file, folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    ours, order = found["confidence"]["theirs"], found["orders"]["theirs"]
    same = ["n", "base_accuracy", "auroc", "brier", "brier_of_base_rate", "log_loss", "coverage"]
    same += ["accepted", "accuracy_accepted", "accuracy_accepted_lower95"]
    for name in same:
        assert ours[name] == pytest.approx(judged[name], abs=1e-9), name
    for name in ("ndcg10", "mrr10"):
        assert order[name] == pytest.approx(judged[name], abs=1e-9), name
    assert order["hit1"] == judged["base_accuracy"]
    for name in ("aurc", "augrc", "naurc"):  # it breaks ties at random, ours by expectation
        assert ours[name] == pytest.approx(judged[name], abs=0.01), name
    if "smece" in judged:
        assert ours["smece"] == pytest.approx(judged["smece"], abs=1e-3)
        assert ours["smece_floor95"] == pytest.approx(judged["smece_floor95"], abs=0.015)
    said = figures(*answers(LabelledSet.read(folder), file))
    names = {"hit@1": "base_accuracy", "nDCG@10": "ndcg10", "AUROC": "auroc", "Brier": "brier"}
    names |= {"log loss": "log_loss", "accepted": "coverage", "right": "accuracy_accepted"}
    names |= {"at least": "accuracy_accepted_lower95"}
    for name, theirs in names.items():
        assert said[name] == pytest.approx(judged[theirs], abs=1e-9), name
    assert said["AURC"] == pytest.approx(judged["aurc"], abs=0.01)
    if "smece" in judged:
        assert said["above"] == pytest.approx(judged["smece_over_floor95"], abs=0.015)


def answers(labelled: LabelledSet, file: Path) -> tuple[Answers, Asked]:
    """What a file says of a split, as a row of the benchmark."""
    ids = labelled.splits["test"]
    said, queries = read_predictions(file, ids, "test"), labelled.select(ids)
    none = np.zeros(len(ids), dtype=np.bool_)
    confidence = np.array([said[i][0] for i in ids])
    return Answers([said[i][1] for i in ids], confidence), Asked(queries, none, none)


def test_the_text_shows_the_figures(
    folder: Path, lines: list[Line], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of other queries are left out and counted."""
    more = {"query_id": "other", "confidence": 0.5, "ranking": []}
    assert call("evaluate", written(tmp_path / "theirs.jsonl", [*lines, more]), folder) == 0
    printed = capsys.readouterr()
    assert "left out: 1 lines" in printed.err
    assert all(name in printed.out for name in ("hit@1", "nDCG@10", "AURC", "log loss", "AUROC"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"query_id": "q0", "confidence": 1.2, "ranking": []}, "from 0 to 1, got 1.2"),
        (
            {"query_id": "q0", "confidence": "high", "ranking": []},
            "'confidence' should be a number",
        ),
        ({"query_id": "q0", "confidence": 0.5}, "got the fields query_id, confidence"),
        ({"query_id": "q0", "confidence": 0.5, "ranking": [{"id": "d0"}]}, "without an id"),
        ({"query_id": "q1", "confidence": 0.5, "ranking": []}, "a second line"),
        (None, "none for 1, such as 'q0'"),
    ],
)
def test_a_file_that_cannot_be_measured_is_refused(
    folder: Path, lines: list[Line], line: Line | None, said: str, tmp_path: Path
) -> None:
    """With the file, the line, and what was expected."""
    file = written(tmp_path / "theirs.jsonl", [*([line] if line else []), *lines[1:]])
    with pytest.raises(InputError, match=said) as raised:
        measure_predictions(file, LabelledSet.read(folder))
    assert str(file) in str(raised.value)


def test_the_command_refuses_it(
    folder: Path, lines: list[Line], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and another split as well."""
    file = written(tmp_path / "theirs.jsonl", lines[1:])
    assert "'q0'" in refused(capsys, "evaluate", file, folder)
    assert "'tset'" in refused(capsys, "evaluate", file, folder, "--split", "tset")


def test_a_passage_that_is_named_twice_counts_once(
    folder: Path, lines: list[Line], tmp_path: Path
) -> None:
    """Where it comes first, as in the files of other tools; else nDCG would exceed 1."""
    labelled = LabelledSet.read(folder)
    twice = [{**line, "ranking": [*line["ranking"][:1] * 3, *line["ranking"]]} for line in lines]
    both = (written(tmp_path / name, some) for name, some in (("a", lines), ("b", twice)))
    once, repeated = (measure_predictions(path, labelled).order for path in both)
    assert once == repeated

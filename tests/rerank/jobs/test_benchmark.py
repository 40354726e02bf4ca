"""The benchmark for users: before and after a calibration on some labels, on the same questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import call, refused
from known_lists import known_lists, write_lines
from small_sets import QUERIES, encoder, write_numbered

import rerank
from rerank.data.labels import Labelled
from rerank.evaluation.measure import OURS
from rerank.jobs.benchmark import benchmark
from rerank.jobs.evaluate import measure_predictions
from rerank.report.benchmark import (
    Answers,
    Asked,
    as_json,
    by_labels,
    differences,
    ece,
    figures,
    interval,
    tables,
)

pytestmark = pytest.mark.usefixtures("untracked")
CONFIG = rerank.Config(rerank_depth=5, candidates=10, pool=20, folds=2)
Row = dict[str, Any]


def reranker(query: str, texts: Sequence[str]) -> list[float]:
    """Words of the question in a passage, and a hint of the number that both end with."""
    words, number = query.split()[:-1], query.rsplit(maxsplit=1)[-1][1:]
    return [
        sum(word in text.split() for word in words) + 2.0 * text.endswith(number) for text in texts
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A model of all labels of a tiny set, its predictions, and the benchmark of both."""
    work = tmp_path_factory.mktemp("work")
    labelled = rerank.LabelledSet.read(write_numbered(work / "set", asked=2))
    own: Any = {"reranker": reranker, "encoder": encoder}
    rerank.calibrate(labelled, work / "model", CONFIG, work=work, **own)
    model = rerank.load(work / "model", **own)
    queries = list(labelled.queries.values())
    lines = [
        {
            "query_id": query.query_id,
            "confidence": round(found.confidence, 3),
            "ranking": list(found.ranking.doc_ids),
        }
        for query, found in zip(queries, model.assess(queries), strict=True)
    ]
    file = work / "theirs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    how: Any = {"labels": [0, 40, None], "draws": 2, "predictions": [file], "work": work}
    rows, notes = benchmark(labelled, model, **how)
    alone, _ = benchmark(labelled, None, **how)
    return SimpleNamespace(
        labelled=labelled,
        model=model,
        rows=rows,
        notes=notes,
        alone=alone,
        work=work,
        file=file,
        lines=lines,
    )


def row(rows: list[Row], way: str, labels: object) -> Row:
    (found,) = (r for r in rows if (r["way"], r["labels"]) == (way, labels))
    return found


def test_a_row_is_of_each_way_and_number_of_labels(made: SimpleNamespace) -> None:
    """What learns nothing has one without labels; the rest one for each number but 0."""
    rows = {(r["way"], r["labels"]) for r in made.rows}
    ways = {"the model as it is", "sigmoid of top logit", "theirs"}
    learned = {OURS, "sigmoid of top logit, scaled", "theirs, scaled"}
    assert rows == {(w, 0) for w in ways} | {(w, n) for w in learned for n in (40, "all")}
    assert {r["lent"] for r in made.rows} == {QUERIES // 2}
    assert made.notes == []


def test_the_figures_of_a_model_are_those_of_its_report(made: SimpleNamespace) -> None:
    """All labels are what it was calibrated on: so both rows are what `evaluate` measures."""
    evaluation = rerank.evaluate(made.model, made.labelled, work=made.work)
    ours, order = evaluation.table[OURS], evaluation.orders["relevance"]
    certified = evaluation.certified.astype(bool)
    expected = {
        "hit@1": ours.base_accuracy,
        "nDCG@10": order["ndcg10"],
        "AUROC": ours.auroc,
        "AURC": ours.aurc,
        "nAUC": ours.nauc,
        "smECE": ours.smece,
        "log loss": ours.log_loss,
        "Brier": ours.brier,
        "accepted": ours.coverage,
        "right": ours.accuracy_accepted,
        "at least": ours.accuracy_accepted_lower95,
        "certified": certified.mean(),
        "certified right": evaluation.right[certified].mean(),
    }
    for way, labels in (("the model as it is", 0), (OURS, "all")):
        found = row(made.rows, way, labels)
        assert {name: found[name] for name in expected} == pytest.approx(expected), way
        assert found["questions"] == ours.n


def test_the_figures_of_a_file_are_those_of_the_file(made: SimpleNamespace) -> None:
    """Beside a model, and alone, where its scaling is what is called calibrated."""
    said = measure_predictions(made.file, made.labelled)
    ours = said.table["theirs"]
    for found in (row(made.rows, "theirs", 0), row(made.alone, "theirs", 0)):
        assert found["hit@1"] == said.order["hit1"]
        assert found["nDCG@10"] == pytest.approx(said.order["ndcg10"])
        assert (found["AUROC"], found["log loss"]) == (ours.auroc, ours.log_loss)
        assert found["at least"] == ours.accuracy_accepted_lower95
        assert "twins" not in found
    scaled = row(made.alone, OURS, "all")
    assert scaled["AUROC"] == pytest.approx(ours.auroc)
    same = row(made.rows, "theirs, scaled", "all")
    assert {**scaled, "way": "", "less": {}} == {**same, "way": "", "less": {}}


def test_differences_are_paired(made: SimpleNamespace) -> None:
    """Of a model with itself they are 0; the sigmoid's has an interval around its value."""
    rows = as_json(made.rows)
    json.dumps(rows, allow_nan=False)
    itself = row(rows, "the model as it is", 0)["less"]["all"]
    assert itself["AUROC"] == pytest.approx([0, 0, 0])
    value, low, high = row(rows, "sigmoid of top logit", 0)["less"]["all"]["AUROC"]
    assert low <= value <= high
    auroc = [row(rows, way, n)["AUROC"] for way, n in ((OURS, "all"), ("sigmoid of top logit", 0))]
    assert value == pytest.approx(auroc[0] - auroc[1])
    assert interval([np.array([[1.0, 2.0], [0.0, 2.0], [2.0, 2.0]])])[0].tolist() == [
        1.0,
        pytest.approx(0.05),
        pytest.approx(1.95),
    ]


def test_several_sets_are_averaged(made: SimpleNamespace) -> None:
    """A difference is the mean over sets; numbers of labels are in order, all of them last."""
    twice = [*made.rows, *({**r, "set": "other"} for r in made.rows)]
    assert differences(twice).table == differences(made.rows).table
    of_one, lent = f"all {QUERIES // 2}", QUERIES // 2 + 7
    more = [*made.rows, *({**r, "set": "other", "lent": lent} for r in made.rows)]
    for shown, rows in ((of_one, made.rows), (f"{of_one} to {lent}", more)):
        assert {line[1] for line in differences(rows).table[1:]} == {"40", shown}
    assert {line[1] for line in tables(made.rows)[0].table[1:]} == {"0", "40", of_one}
    numbers: list[int | str] = ["all", 2000, 50]
    assert sorted(numbers, key=by_labels) == [50, 2000, "all"]
    same: dict[str, Any] = {"way": "a", "AUROC": 0.5, "threshold": 0.7, "lent": [58, 310, 60]}
    rows = [{"labels": n, **same} for n in ("all", 2000, 50)]
    (section,) = tables(rows)
    assert section.table == [
        ["way", "labels", "AUROC"],
        ["a", "50", ".500"],
        ["a", "2000", ".500"],
        ["a", "all 58 to 310", ".500"],
    ]


def test_figures_by_hand() -> None:
    """Four questions, and copies of two of them without their answers."""
    queries = [rerank.Query(f"text {i}", f"q{i}") for i in (0, 1, 2, 3, 0, 1)]
    grades: list[dict[str, float]] = [{"a": 1.0}, {"b": 1.0}, {"c": 1.0}, {}, {}, {}]
    labelled = Labelled(queries, np.array(list("abcdab")), grades)
    copies = np.array([False] * 4 + [True] * 2)
    present = np.array([True, True, False, False, False, False])
    said = Answers(
        [["a"], ["x", "b"], ["c"], ["x"], ["x"], ["x"]],
        np.array([0.9, 0.8, 0.75, 0.1, 0.85, 0.2]),
        promised=np.array([True, True, False, False, False, False]),
        contexts=np.array([True, True, False, False, False, False]),
        relevance=[np.full(n, 0.5) for n in (1, 2, 1, 1, 1, 1)],
    )
    found = figures(said, Asked(labelled, copies, present))
    assert (found["hit@1"], found["accepted"], found["certified"]) == (0.5, 0.75, 0.5)
    assert found["right"] == pytest.approx(2 / 3)
    assert (found["certified right"], found["kept"]) == (0.5, 0.0)
    assert (found["context right"], found["context kept"]) == (1.0, 1.0)
    assert (found["twins"], found["false accepts"]) == (0.75, 0.5)
    gate = replace(
        said, claims=False, accepted=copies, confidence=np.r_[said.confidence[:4], np.nan, np.nan]
    )
    other = figures(gate, Asked(labelled, copies, present))
    assert (other["accepted"], other["right"]) == (0.0, None)
    assert found["pair ECE"] == pytest.approx(abs(3 / 5 - 0.5))
    assert not {"smECE", "Brier", "at least", "twins"} & set(other)
    assert ece(np.array([1.0, 0.0]), np.array([0.75, 0.75])) == 0.25


def test_a_set_of_one_split_lends_by_whole_groups(made: SimpleNamespace) -> None:
    """45% of it; nothing is measured that lends."""
    one = replace(made.labelled, splits={"test": made.labelled.splits["test"]})
    (only,), _ = benchmark(one, None, labels=[0], predictions=[made.file])
    assert only["lent"] + only["questions"] == len(one.splits["test"])
    assert 0.3 < only["lent"] / len(one.splits["test"]) < 0.5


def test_lists_are_measured_by_their_own_scores(tmp_path: Path) -> None:
    """Without a model; all labels give what a model of these lists gives."""
    lists, config = known_lists(100), rerank.Config(folds=2, calibrator="logistic")
    for line in lists[60:]:
        line["split"] = "test"
    labelled = rerank.LabelledSet.read(write_lines(tmp_path / "lists.jsonl", lists))
    found, _ = benchmark(labelled, config, labels=[0, None], work=tmp_path)
    assert {r["way"] for r in found} == {"your own score", "your own score, scaled", OURS}
    rerank.calibrate(labelled, tmp_path / "model", config, work=tmp_path)
    model = rerank.load(tmp_path / "model")
    same, _ = benchmark(labelled, model, labels=[0], work=tmp_path)
    ours, again = row(found, OURS, "all"), row(same, "the model as it is", 0)
    assert ours["log loss"] == pytest.approx(again["log loss"])
    assert "twins" not in ours


def test_the_command_writes_a_page_and_json(
    made: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints the tables; with --json the object. A file that lacks lines is not scaled."""
    few, asked = tmp_path / "few.jsonl", set(made.labelled.splits["test"])
    rest = [line for line in made.lines if line["query_id"] in asked]
    few.write_text("".join(json.dumps(line) + "\n" for line in rest))
    out = tmp_path / "out"
    where = ("evaluate", made.file, made.work / "set", "--labels", "0", "40", "--draws", "2")
    assert call(*where, "--beside", few, "--out", out) == 0
    printed = capsys.readouterr()
    assert "not calibrated" in printed.err
    assert "theirs" in printed.out
    rows = json.loads((out / "benchmark.json").read_text())["rows"]
    assert [r["labels"] for r in rows if r["way"] == OURS] == [40]
    page = (out / "benchmark.html").read_text()
    assert "nDCG@10" in page
    assert call(*where, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == [r for r in rows if r["way"] != "few"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--labels", "some"), "expected whole numbers, or all, got 'some'"),
        (("--labels", "5"), "got 5"),
        (("--labels", "0", "--reranker", "minilm-reranker"), "only with 'default'"),
        (("--labels", "0", "--examples"), "--examples: not with --labels"),
        (("--draws", "2"), "--draws: only with --labels"),
        (("--labels", "0", "--split", "tset"), "'tset'"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    made: SimpleNamespace, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, with exit code 2."""
    assert said in refused(capsys, "evaluate", made.file, made.work / "set", *more)

"""Lists of any system, from labels to answers: the model knows nothing but their scores."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from coherence import check_coherent
from command_line import call, refused
from known_lists import STAGES, known_lists, unlabelled, write_lines
from processes import run_python
from server import serving

import rerank
from calibration import metrics
from rerank.advice.adaptive import check_floor
from rerank.advice.explanation import explain
from rerank.assessment.fitted_maps import MapsByMode
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.pipeline import Pipeline
from rerank.assessment.ranking_features import ranking_features
from rerank.assessment.sources.lists import ScoredLists
from rerank.batch.table import assess_lists
from rerank.config import Config
from rerank.data.beir import read_queries
from rerank.data.labelled_set import LabelledSet
from rerank.data.records import read_query
from rerank.errors import EXTRAS, InputError
from rerank.fitting.fit import fit
from rerank.fitting.plan import REPORT_NOT_AT_RANDOM, plan
from rerank.fitting.scored_plan import score_lists
from rerank.jobs.calibrate import CalibrationRun, calibrate
from rerank.types import OWN_STAGES, Passage, Query

pytestmark = pytest.mark.usefixtures("untracked")
CONFIG = Config(folds=2, calibrator="logistic")
FRESH = known_lists(400, seed=1)
ALONE = """
import json, rerank
from pathlib import Path
from rerank.data.beir import read_queries
model = rerank.load({folder!r})
found = model.assess(read_queries(Path({queries!r}), passages=True))
print(json.dumps([each.to_dict() for each in found]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lists")


@pytest.fixture(scope="module")
def labelled(place: Path) -> LabelledSet:
    rows = known_lists(100)
    for row in rows[60:]:
        row["split"] = "test"
    return LabelledSet.read(write_lines(place / "lists.jsonl", rows))


@pytest.fixture(scope="module")
def outcome(labelled: LabelledSet, place: Path) -> CalibrationRun:
    return calibrate(labelled, place / "model", CONFIG, work=place / "work")


@pytest.fixture(scope="module")
def model(outcome: CalibrationRun) -> CalibratedReranker:
    return CalibratedReranker.load(outcome.folder)


@pytest.fixture(scope="module")
def fresh(place: Path) -> Path:
    """Unlabelled lists that nothing was fitted on."""
    return write_lines(place / "fresh.jsonl", [unlabelled(row) for row in FRESH])


@pytest.fixture(scope="module")
def queries(fresh: Path) -> list[Query]:
    return read_queries(fresh, passages=True)


def test_the_confidence_is_true_of_other_lists(
    model: CalibratedReranker, queries: list[Query]
) -> None:
    """Of 400 lists of the same world: it tells right from wrong, and means what it says."""
    found = model.assess(queries)
    right_of = {row["_id"]: {p["_id"] for p in row["passages"] if p["right"]} for row in FRESH}
    right = np.array([a.ranking.doc_ids[0] in right_of[a.ranking.query.query_id] for a in found])
    confidence = np.array([a.confidence for a in found])
    assert metrics.auroc(right.astype(int), confidence) > 0.75
    assert abs(confidence.mean() - right.mean()) < 0.13  # two standard errors, of both samples
    assert right[confidence >= 0.7].mean() > 0.7
    for answer in found:
        check_coherent(answer)


def test_plain_dictionaries_and_frames_are_lists(
    model: CalibratedReranker, queries: list[Query]
) -> None:
    """Whatever their scores are called: the numbers of the same lists, with the caller's own."""
    some = queries[:3]
    expected = model.assess(some)
    hits = [
        {"query": q.text, "id": p.doc_id, **dict(zip(("lexical", "best"), numbers, strict=True))}
        for q in some
        for p, *numbers in zip(q.passages or (), *(q.scores or {}).values(), strict=True)
    ]
    keys = {"bm25": "lexical", "reranker": "best"}
    own = [hit for hit in hits if hit["query"] == some[0].text]
    found = assess_lists(model, some[0].text, own, score_keys=keys)
    assert found.relevance.tolist() == expected[0].relevance.tolist()
    assert [p.scores for p in found.passages] == [p.scores for p in expected[0].passages]
    shuffled = pd.DataFrame(hits).sample(frac=1, random_state=0)
    frame = assess_lists(model, None, shuffled, score_keys=keys)
    for query, answer in zip(some, expected, strict=True):
        of_query = frame[frame["query"] == query.text]
        assert of_query["id"].tolist() == list(answer.ranking.doc_ids)
        assert of_query["relevance"].tolist() == answer.relevance.tolist()
        assert set(of_query["confidence"]) == {answer.confidence}
    with pytest.raises(InputError, match="no passage has the score 'worst'"):
        assess_lists(model, "a question", own, score_keys={**keys, "reranker": "worst"})
    with pytest.raises(InputError, match="expected a query"):
        assess_lists(model, None, own, score_keys=keys)


def test_a_similarity_floor_is_refused(model: CalibratedReranker) -> None:
    """Lists have scores, and no similarity that a floor could be compared with."""
    with pytest.raises(InputError, match="similarity_floor"):
        check_floor(model)


def test_the_report_has_your_own_score_beside_the_confidence(outcome: CalibrationRun) -> None:
    """As it came, measured as the confidence is."""
    assert "your own score" in outcome.report


def test_a_report_on_lists_that_were_drawn_by_confidence_is_told(
    labelled: LabelledSet, outcome: CalibrationRun, tmp_path: Path
) -> None:
    """Their accuracy is not that of all lists; those that are fitted on are a random sample."""
    queries = dict(labelled.queries)
    for i in labelled.splits["test"]:
        queries[i] = replace(queries[i], metadata={"weight": 2.0})
    weighted = replace(labelled, queries=queries)
    told = calibrate(weighted, tmp_path / "model", CONFIG, work=tmp_path / "work")
    assert f"warning: {REPORT_NOT_AT_RANDOM}" in told.notes
    assert f"Warning: {REPORT_NOT_AT_RANDOM}" in " ".join(told.report.split())
    assert not any(REPORT_NOT_AT_RANDOM in note for note in outcome.notes)


@pytest.mark.parametrize(
    ("option", "value"), [("encoder", "other"), ("precision", "fp32"), ("rerank_depth", 20)]
)
def test_options_of_our_own_stages_are_refused(
    labelled: LabelledSet, tmp_path: Path, option: str, value: object
) -> None:
    """They would change nothing, and look as if they had."""
    config = replace(CONFIG, **{option: value})
    flag = option.replace("_", "-")
    with pytest.raises(InputError, match=rf"`{option}` \(--{flag}\) has no effect on lists"):
        calibrate(labelled, tmp_path / "model", config, work=tmp_path / "work")


def test_labels_that_show_nothing_are_told(labelled: LabelledSet, tmp_path: Path) -> None:
    """Where what is right has nothing to do with the scores; not where it has."""
    rows = known_lists(100)
    rng = np.random.default_rng(0)
    for row in rows:
        right = [p["right"] for p in row["passages"]]
        for passage, other in zip(row["passages"], rng.permutation(right).tolist(), strict=True):
            passage["right"] = other
    noise = LabelledSet.read(write_lines(tmp_path / "noise.jsonl", rows))
    for given, told in ((noise, True), (labelled, False)):
        planned = plan(given, trained_hashes=frozenset(), max_queries=None, seed=0)
        assert given.lists is not None
        rankings = score_lists(Pipeline(ScoredLists(given.lists, CONFIG), None), planned)
        reason = fit(rankings, CONFIG).reason
        assert ("no better than the same confidence for all queries" in reason) == told


def test_labels_of_empty_lists_do_not_move_the_confidence(
    model: CalibratedReranker, place: Path, tmp_path: Path
) -> None:
    """Their confidence is 0 in any case; the fit leaves them out, too."""
    rows = [{**row, "split": "test"} for row in FRESH[:60]]
    empty = [{"_id": f"e{i}", "query": f"nothing {i}", "passages": []} for i in range(40)]
    with_empty = [*rows, *({**row, "relevant": [], "split": "test"} for row in empty)]
    maps = []
    for name, lines in (("without", rows), ("with", with_empty)):
        given = LabelledSet.read(write_lines(tmp_path / f"{name}.jsonl", lines))
        made = rerank.recalibrate(model, given, tmp_path / name, split="test", work=place / "work")
        maps.append(CalibratedReranker.load(made.folder).maps["lists"])
    assert maps[0].confidence.update == maps[1].confidence.update


def test_the_order_is_better_than_each_stage_alone(
    model: CalibratedReranker, queries: list[Query]
) -> None:
    """Both stages together put more right passages first than the better one does."""
    found = [a.ranking.doc_ids[0] for a in model.assess(queries)]
    right = [{p["_id"] for p in row["passages"] if p["right"]} for row in FRESH]
    of_stage = [
        max(row["passages"], key=lambda p: p["scores"]["reranker"] or -np.inf)["_id"]
        for row in FRESH
    ]
    ours, theirs = (
        sum(top in good for top, good in zip(tops, right, strict=True))
        for tops in (found, of_stage)
    )
    assert ours >= theirs


def test_an_answer_holds_the_scores_that_came(
    model: CalibratedReranker, queries: list[Query]
) -> None:
    """By stage, None where one did not bring the passage; no score of ours; reasons in words."""
    told = model.assess(queries[:1])[0].to_dict()
    came = {p["_id"]: p["scores"] for p in FRESH[0]["passages"]}
    assert {p["doc_id"]: p["scores"] for p in told["ranking"]} == came
    assert all(set(p) == {"doc_id", "relevance", "scores"} for p in told["ranking"])
    assert any(stage in reason for reason in told["reasons"] for stage in (*STAGES, "score"))
    json.dumps(told, allow_nan=False)


def test_the_order_of_the_list_says_nothing(
    model: CalibratedReranker, queries: list[Query]
) -> None:
    """Neither that of its passages nor that of its stages."""
    query = queries[0]
    assert query.passages is not None
    assert query.scores is not None
    turned = Query(
        query.text,
        query.query_id,
        passages=query.passages[::-1],
        scores={stage: query.scores[stage][::-1] for stage in reversed(STAGES)},
    )
    one, other = (a.to_dict()["ranking"] for a in model.assess([query, turned]))
    assert [p["doc_id"] for p in one] == [p["doc_id"] for p in other]
    assert [p["relevance"] for p in one] == pytest.approx([p["relevance"] for p in other])


def test_a_list_of_no_passage_has_no_confidence(model: CalibratedReranker) -> None:
    """It is answered, by 0, whatever stages brought nothing."""
    assert model.assess([Query("x", passages=())])[0].confidence == 0


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (Query("x"), "has no index.*scores of bm25, reranker"),
        (Query("x", passages=(Passage("0", "", "text"),)), "has no index"),
        (
            Query("x", passages=(Passage("0", "", ""),), scores={"reranker": np.ones(1)}),
            "have the scores of reranker; expected those of bm25, reranker",
        ),
    ],
)
def test_what_the_model_does_not_answer(
    model: CalibratedReranker, query: Query, sentence: str
) -> None:
    """One sentence, whatever is asked."""
    with pytest.raises(InputError, match=sentence):
        model.assess([query])


def test_no_answer_is_made_before_every_list_is_checked(
    model: CalibratedReranker, queries: list[Query], tmp_path: Path
) -> None:
    """What cannot be answered is named by its place and id, and no language model is paid.

    That is a list of other stages, and one without any text.
    """
    other = replace(queries[2], scores={"other": np.ones(len(queries[2].passages or ()))})
    other = replace(other, passages=with_texts(other))
    expected = (
        r"(?s)query 3, 'q2': .* expected those of bm25, reranker.*"
        r"query 4, 'q3': the passages have no text to answer from"
    )
    made: list[object] = []
    answer_file = pytest.importorskip("rerank.rag.answer_file").answer_file
    with pytest.raises(InputError, match=expected):
        answer_file(
            model,
            [*(replace(q, passages=with_texts(q)) for q in queries[:2]), other, queries[3]],
            tmp_path / "answers.jsonl",
            record=lambda found, **_: str(made.append(found)),
        )
    assert not made


def with_texts(query: Query) -> tuple[Passage, ...]:
    """The passages of a query, each with a text."""
    return tuple(replace(p, text=f"It is {p.doc_id}.") for p in query.passages or ())


def test_a_model_with_an_index_takes_no_other_scores(model: CalibratedReranker) -> None:
    """Its maps are of its own scores."""
    (maps,) = model.maps.values()
    with pytest.raises(InputError, match="without the scores of other"):
        MapsByMode(dict.fromkeys(("search", "rerank"), replace(maps, kind=OWN_STAGES)))["lists"]


def test_rescore_writes_the_same(model: CalibratedReranker, fresh: Path, tmp_path: Path) -> None:
    """A row of other stages is rejected with the reason, and the others are answered."""
    other = unlabelled(FRESH[1])
    for passage in other["passages"]:
        del passage["scores"]["reranker"]
    rows = [unlabelled(FRESH[0]), other, {"_id": "s", "query": "search"}]
    given, out = write_lines(tmp_path / "given.jsonl", rows), tmp_path / "out.jsonl"
    done = rerank.rescore(model, given, out)
    assert (done.answered, done.rejected) == (1, 2)
    expected = model.assess(read_queries(given, passages=True)[:1])[0].to_dict()
    assert json.loads(out.read_text()) == expected
    rerank.rescore(model, given, tmp_path / "out.parquet")
    (row,) = pq.read_table(tmp_path / "out.parquet").to_pylist(maps_as_pydicts="strict")
    assert row == expected
    with pytest.raises(InputError, match=r"`engine` .* should be one of local, ray, got 'rya'"):
        rerank.rescore(model, given, out, engine="rya")
    reasons = [json.loads(line)["reason"] for line in done.side.read_text().splitlines()]
    assert "expected those of bm25, reranker" in reasons[0]
    assert "no index" in reasons[1]


def test_the_core_alone_assesses(
    model: CalibratedReranker, outcome: CalibrationRun, queries: list[Query], place: Path
) -> None:
    """No extra, and not the engines of networks either: there is nothing to run."""
    blocked = sorted(set().union(*EXTRAS.values()) | {"onnxruntime", "tokenizers"})
    few = write_lines(place / "few.jsonl", [unlabelled(row) for row in FRESH[:5]])
    code = ALONE.format(folder=str(outcome.folder), queries=str(few))
    answers = json.loads(run_python(code, blocked=blocked))
    assert answers == [a.to_dict() for a in model.assess(queries[:5])]
    assert not (outcome.folder / "index").exists()


def test_over_http(
    model: CalibratedReranker, outcome: CalibrationRun, queries: list[Query]
) -> None:
    """`/v1/assess` gives the model's numbers; other routes say that there is no index."""
    row = FRESH[0]
    scores = {stage: [p["scores"][stage] for p in row["passages"]] for stage in STAGES}
    with (
        serving(outcome.folder) as started,
        httpx.Client(base_url=started.url, timeout=600) as client,
    ):
        told = client.post("/v1/assess", json={"query": row["query"], "scores": scores}).json()
        expected = model.assess(queries[:1])[0]
        assert told["confidence"] == expected.confidence
        assert {r["index"]: r["relevance_score"] for r in told["results"]} == {
            p.row: p.relevance for p in expected.passages
        }
        named = client.get("/v1/model").json()
        assert named["stages"] == list(STAGES)
        assert {named[part] for part in ("encoder", "reranker", "precision")} == {""}
        missing = client.get("/v1/document", params={"row": 0, "doc_id": "a"})
        assert missing.status_code == 404
        assert missing.json()["message"].startswith("this model has no index: the passages come")
        for path, asked in (
            ("/v1/search", {"query": "x"}),
            ("/v1/assess", {"query": "x", "documents": ["a"], "scores": [1.0], "reranker": "r"}),
        ):
            answer = client.post(path, json=asked)
            assert answer.status_code == 422
            assert "no index" in answer.json()["message"]


def test_the_same_call_makes_it_once(
    outcome: CalibrationRun, labelled: LabelledSet, place: Path
) -> None:
    """As every calibration; and the report names the stages and the groups."""
    assert outcome.made
    assert not calibrate(labelled, outcome.folder, CONFIG, work=place / "work").made
    told = " ".join(outcome.report.split())
    assert "`logit` is the score of reranker" in told
    assert "Groups: " in told


def test_other_jobs(
    model: CalibratedReranker, labelled: LabelledSet, place: Path, tmp_path: Path
) -> None:
    """It is evaluated, watched and recalibrated on lists; nothing of it is exported."""
    given = write_lines(tmp_path / "new.jsonl", [{**row, "split": "test"} for row in FRESH[:60]])
    measured = rerank.evaluate(model, LabelledSet.read(given))
    assert len(measured.right) == 60
    lists = read_queries(given, passages=True)
    assert not rerank.detect_drift(model, lists, level=0.001).fired
    labels = [
        {**unlabelled(row), "relevant": [p["_id"] for p in row["passages"] if p["right"]]}
        for row in FRESH[:60]
    ]
    moved = rerank.recalibrate(
        model, write_lines(tmp_path / "labels.jsonl", labels), tmp_path / "new", work=place / "work"
    )
    new = CalibratedReranker.load(moved.folder)
    assert new.assess(lists[:1])[0].confidence > 0
    with pytest.raises(InputError, match="got one: 'median'"):
        rerank.detect_drift(model, "median")  # type: ignore[arg-type]
    of_set = rerank.recalibrate(
        model, LabelledSet.read(given), tmp_path / "same", split="test", work=place / "work"
    )
    same = CalibratedReranker.load(of_set.folder)
    for key in ("name", "dataset"):  # each list brings its own passages: nothing else is searched
        assert same.manifest[key] == new.manifest[key] == model.manifest[key]
    assert same.sketch == new.sketch == model.sketch
    with pytest.raises(InputError, match="holds no index and no networks"):
        model.pipeline.encoder  # noqa: B018
    entry_of = pytest.importorskip("rerank.journal.store").entry_of
    entry = entry_of(model.assess(lists[:1])[0], answer_id="a", model="m", latency=0.1)
    again = read_query({**json.loads(entry["asked"]), "_id": "again"})
    assert again.scores_of(0) == lists[0].scores_of(0)


def test_its_signals_add_up(model: CalibratedReranker, queries: list[Query]) -> None:
    """What moved the confidence is left out nowhere; agreement and coverage are of its stages."""
    maps, found = model.maps["lists"], model.assess(queries[:1])[0]
    features = ranking_features([found.ranking], maps.features.ranking)[0].tolist()
    moves = maps.confidence.contributions([features])
    signals = {signal.name: signal for signal in explain(model, found).signals}
    assert sum(s.log_odds for s in signals.values()) == pytest.approx(moves.sum())
    value = dict(zip(maps.features.ranking, features, strict=True))
    assert signals["stage_agreement"].value == value["bm25.reranker.overlap"]
    assert ("query_coverage" in signals) == ("winner_term_coverage" in value)


def test_on_the_command_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad lines and labels that teach nothing are refused with code 2, and nothing is written."""
    out = tmp_path / "model"
    rows = known_lists(30)
    rows[3]["passages"][1]["_id"] = rows[3]["passages"][0]["_id"]
    given = write_lines(tmp_path / "bad.jsonl", rows)
    work = ("--work", tmp_path / "work", "--folds", 2)
    assert ":4: 'passages' holds" in refused_lines(capsys, "calibrate", given, "--out", out, *work)
    wrong = [{**unlabelled(row), "relevant": []} for row in known_lists(30)]
    given = write_lines(tmp_path / "wrong.jsonl", wrong)
    assert "wrong for all" in refused(capsys, "calibrate", given, "--out", out, *work)
    few = write_lines(tmp_path / "few.jsonl", known_lists(10))
    assert "at least 20" in refused(capsys, "calibrate", few, "--out", out, *work)
    assert not out.exists()
    assert call("data", "check", few) == 0


def refused_lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """All of stderr of a command that must be refused with exit code 2."""
    assert call(*arguments) == 2
    return capsys.readouterr().err


def test_trec_to_a_model(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs and qrels of the same lists, imported, are the same set but for its words."""
    rows = known_lists(30)
    for stage in STAGES:
        (tmp_path / f"{stage}.run").write_text(
            "".join(
                f"{row['_id']} Q0 {p['_id']} 1 {p['scores'][stage]!r} tag\n"
                for row in rows
                for p in row["passages"]
                if p["scores"][stage] is not None
            )
        )
    (tmp_path / "qrels").write_text(
        "".join(f"{r['_id']} 0 {p['_id']} {p['right']:d}\n" for r in rows for p in r["passages"])
    )
    runs = [tmp_path / f"{stage}.run" for stage in STAGES]
    out = tmp_path / "lists.jsonl"
    assert call("data", "import-trec", *runs, "--qrels", tmp_path / "qrels", "--out", out) == 0
    assert "lists of 30 queries" in capsys.readouterr().out
    imported = LabelledSet.read(out)
    expected = LabelledSet.read(write_lines(tmp_path / "expected.jsonl", rows))
    assert imported.qrels == expected.qrels
    assert imported.lists == expected.lists
    for query_id, query in expected.queries.items():
        scores = {p.doc_id: query.scores_of(i) for i, p in enumerate(query.passages or ())}
        same = imported.queries[query_id]
        assert scores == {p.doc_id: same.scores_of(i) for i, p in enumerate(same.passages or ())}
    same_run = ("data", "import-trec", runs[0], os.fspath(runs[0]), "--qrels", out)
    assert "two runs are named" in refused(capsys, *same_run, "--out", tmp_path / "x.jsonl")

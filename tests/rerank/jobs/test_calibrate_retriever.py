"""Candidates of another search system to a model, by the systems' own clients."""

from __future__ import annotations

import asyncio
import io
import json
import math
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from coherence import check_coherent
from collections_of import MAKERS, rows_of
from command_line import call, refused
from http_checks import assert_refused
from pieces import SPEED, driven
from server import serving

import rerank
from rerank.advice.explanation import explain, signals_for
from rerank.advice.settings import AnswerConfig
from rerank.assessment import model_folder
from rerank.assessment.model import CalibratedReranker
from rerank.assessment.ranking_features import ranking_features
from rerank.assessment.steps import SCORE_OVERHEAD_S, expected_seconds
from rerank.config import Config, Thresholds
from rerank.data.grouping import grouped
from rerank.data.labelled_set import LabelledSet
from rerank.data.records import read_query
from rerank.errors import InputError, RetrieverError
from rerank.inference.model_files import ModelFiles, resolve
from rerank.jobs.calibrate import CalibrationRun, calibrate
from rerank.jobs.update import export
from rerank.retrieval.dense import Encoder
from rerank.serving.model_source import ModelHolder
from rerank.serving.settings import Settings
from rerank.serving.telemetry import Metrics
from rerank.serving.worker import Worker
from rerank.types import Passage, Query

ASKED = "median ignoring NaNs"
UNREACHED = Thresholds(high=1.0, medium=1.0)
BY_EACH_CLIENT = [  # the other tests use one system only: they never come near its client
    "test_a_model_of_another_system",
    "test_the_confidence_is_coherent_and_tells_right_from_wrong",
    "test_reloaded_it_answers_the_same",
    "test_passages_that_are_not_there",
    "test_vectors_of_another_encoder",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which systems' collections a test is given."""
    if "retriever" in metafunc.fixturenames:
        each = metafunc.function.__name__ in BY_EACH_CLIENT
        systems = sorted(MAKERS) if each else ["lancedb"]
        metafunc.parametrize("retriever", systems, indirect=True, scope="module")


@pytest.fixture(scope="module")
def rows(small: LabelledSet, config: Config) -> list[dict[str, Any]]:
    encoder = Encoder.from_config(resolve(config.encoder), config)
    return rows_of(small, encoder)


@pytest.fixture(scope="module")
def labelled(small_folder: Path) -> LabelledSet:
    """The small set without its corpus."""
    return LabelledSet.read(small_folder, corpus_elsewhere=True)


@pytest.fixture(scope="module")
def retriever(
    request: pytest.FixtureRequest, rows: list[dict[str, Any]], tmp_path_factory: Any
) -> Path:
    """The TOML file of a collection of the small set's corpus."""
    return MAKERS[request.param](rows, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def cheap(config: Config) -> Config:
    return replace(config, rerank_depth=3, calibrator="logistic")


@pytest.fixture(scope="module")
def outcome(labelled: LabelledSet, retriever: Path, cheap: Config, work: Path) -> CalibrationRun:
    out = retriever.parent / "model"
    return calibrate(labelled, out, cheap, work=work, retriever=retriever)


@pytest.fixture(scope="module")
def model(outcome: CalibrationRun) -> CalibratedReranker:
    return CalibratedReranker.load(outcome.folder)


def test_a_model_of_another_system(outcome: CalibrationRun, model: CalibratedReranker) -> None:
    """It names the system, holds no index, and its stages are the system's and our reranker."""
    assert not (outcome.folder / "index").exists()
    assert model.source.folder is None
    assert model.source.kind.stages == ("keyword", "vector", "reranker")
    assert "Passages scored per query: 3.0" in outcome.report
    assert not outcome.notes


def test_the_confidence_is_coherent_and_tells_right_from_wrong(
    model: CalibratedReranker, labelled: LabelledSet
) -> None:
    """Of queries that were not fitted on: right tops are surer than wrong ones."""
    ids = labelled.splits["test"]
    found = model.assess([labelled.queries[i] for i in ids])
    right, wrong = [], []
    for i, given in zip(ids, found, strict=True):
        check_coherent(given)
        hit = given.ranking.doc_ids[0] in labelled.relevant(i)
        (right if hit else wrong).append(given.confidence)
        scored = [p.scores["reranker"] for p in given.passages]
        assert sum(score is not None for score in scored) == 3
    assert sum(right) / len(right) > sum(wrong) / len(wrong) + 0.1
    assert len(right) > len(ids) / 2


def test_reloaded_it_answers_the_same(model: CalibratedReranker, outcome: CalibrationRun) -> None:
    """And a list that was kept is assessed without the system."""
    again = CalibratedReranker.load(outcome.folder)
    first, second = model.search(ASKED), again.search(ASKED)
    assert first.to_dict() == second.to_dict()
    assert first.passages[0].metadata["place"].startswith("page ")
    kept = first.ranking.query
    replayed = again.assess([Query(kept.text, passages=kept.passages, scores=kept.scores)])[0]
    assert replayed.confidence == pytest.approx(first.confidence)
    assert replayed.ranking.doc_ids == first.ranking.doc_ids
    entry_of = pytest.importorskip("rerank.journal.store").entry_of
    entry = entry_of(first, answer_id="a", model="m", latency=0.1)
    journaled = read_query({**json.loads(entry["asked"]), "_id": "again"})
    assert again.assess([journaled])[0].confidence == pytest.approx(first.confidence)


def test_its_journal_is_one_of_searches(model: CalibratedReranker, tmp_path: Path) -> None:
    """So it gives labels, queries, and what waits for a judgement."""
    journals = pytest.importorskip("rerank.journal.journal")
    reading = pytest.importorskip("rerank.journal.reading")
    waiting = reading.waiting
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    with journals.Journal(url) as journal:
        found = model.search(ASKED)
        given = journal.record(found.by(UNREACHED), model=model.version)
        assert journal.flush()
        assert [row["id"] for row in waiting(journal.store, model=model.version)] == [given]
        assert journal.judge(given, right=True)
    labels, notes = reading.journal_labels(model, url)
    assert ([label.query.text for label in labels], notes) == ([ASKED], ())
    (kept,) = reading.journal_queries(model, url, newest=5)
    assert model.assess([kept])[0].confidence == pytest.approx(found.confidence)


def test_in_steps_it_answers_the_same(model: CalibratedReranker) -> None:
    """A search stays one although the system brought its passages; a list stays a list."""
    found = model.search(ASKED)
    assert found.mode == "search"
    for query in (Query(ASKED), found.ranking.query, Query(ASKED, passages=())):
        (expected,) = model.assess([query])
        given, _ = driven(model, query)
        assert given.to_dict() == expected.to_dict()
        assert given.mode == expected.mode == query.mode


def test_a_list_without_a_score_of_the_reranker_is_scored_here(model: CalibratedReranker) -> None:
    """The expected work is that of its pieces; a list with scores costs next to nothing."""
    found = model.search(ASKED)
    scored = found.ranking.query
    assert expected_seconds(scored, model.pipeline, SPEED, scoring_seconds=7)[1] == SCORE_OVERHEAD_S
    assert driven(model, scored)[1] == []
    none = np.full(len(scored.passages or ()), np.nan)
    unscored = replace(scored, scores={**(scored.scores or {}), "reranker": none})
    given, (piece,) = driven(model, unscored)
    _, scoring = expected_seconds(unscored, model.pipeline, SPEED, scoring_seconds=7)
    assert given.confidence == found.confidence
    assert (piece.stage, len(piece.items)) == ("score", 3)
    assert 0.5 < piece.seconds / scoring < 2


def test_it_takes_no_passages_without_scores(model: CalibratedReranker) -> None:
    """It was fitted on no such lists."""
    with pytest.raises(InputError, match=r"another search system.*keyword, vector, reranker"):
        model.rerank(ASKED, ["a", "b"])
    with pytest.raises(InputError, match="give it queries alone"):
        model.maps["lists"]
    assert model.assess([Query(ASKED, passages=())])[0].confidence == 0


def test_other_jobs(
    model: CalibratedReranker,
    labelled: LabelledSet,
    small_folder: Path,
    work: Path,
    tmp_path: Path,
) -> None:
    """It is evaluated, recalibrated, and rescores as it searches."""
    measured = rerank.evaluate(model, labelled, work=work)
    assert len(measured.right) == 30
    whole = LabelledSet.read(small_folder)
    groups = grouped(whole, whole.split("test")).select(whole.split("test")).groups
    assert measured.labelled.groups.tolist() == groups.tolist()  # by the passages' texts and titles
    moved = rerank.recalibrate(model, labelled, tmp_path / "new", split="test", work=work)
    assert 0 < CalibratedReranker.load(moved.folder).search(ASKED).confidence < 1
    given, out = tmp_path / "queries.jsonl", tmp_path / "out.jsonl"
    given.write_text(json.dumps({"_id": "q", "query": ASKED}) + "\n")
    assert rerank.rescore(model, given, out).answered == 1
    assert json.loads(out.read_text())["confidence"] == model.search(ASKED).confidence


def test_over_http(model: CalibratedReranker, outcome: CalibrationRun) -> None:
    """The routes give the model's numbers; what the page shows has the scores of each stage."""
    with serving(outcome.folder) as started:
        told, page = (
            httpx.post(f"{started.url}/v1/{route}", json={"query": ASKED}, timeout=600).json()
            for route in ("search", "ask")
        )
    found = model.search(ASKED)
    assert told["confidence"] == page["assessment"]["confidence"] == found.confidence
    assert page["answer"]["refused"] == (not page["answer"]["sources"])
    assert [s["name"] for s in page["signals"]] == list(signals_for(model.maps["search"]))
    assert [p["scores"] for p in page["passages"]] == [p.scores for p in found.first(10)]


def test_a_lost_index_is_no_fault_of_the_query(
    model: CalibratedReranker,
    outcome: CalibrationRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client is told to try later; the address of the system is in the log alone."""

    def lost(*_: object) -> None:
        raise InputError("http://inside:9200 passages: it has no such index")

    with serving(outcome.folder) as started:
        monkeypatch.setattr(type(model.source.system), "keyword", lost)  # type: ignore[attr-defined]
        told = httpx.post(f"{started.url}/v1/search", json={"query": ASKED}, timeout=600)
    assert_refused(told, 503, "does not answer; try again later")
    assert "inside" not in told.text
    (why,) = [r.fields["why"] for r in caplog.records if r.msg == "the search system failed"]
    assert why.startswith("http://inside:9200")


def test_its_signals_add_up(model: CalibratedReranker, labelled: LabelledSet) -> None:
    """Nothing that moved the confidence is left out, and each signal has words for its value."""
    maps = model.maps["search"]
    for found in model.assess([labelled.queries[i] for i in labelled.splits["test"][:8]]):
        signals = explain(model, found).signals
        features = ranking_features([found.ranking], maps.features.ranking)
        moves = maps.confidence.contributions(features)
        assert sum(s.log_odds for s in signals) == pytest.approx(moves.sum())
        assert all(math.isfinite(s.value) and s.meaning for s in signals)


class Undecided:
    """An answerer whose one sentence shares some words with its source, and not most."""

    def generate(
        self, question: str, sources: Sequence[Any], *, note: str = "", strict: bool = False
    ) -> Any:
        """Half of the first source's words, and as many that it lacks."""
        answerers = pytest.importorskip("rerank.rag.answer.answerers")
        known = sources[0].passage.text.split(".")[0].lower().split()[:4]
        return answerers.Generated(f"{' '.join(known)} penguins swimming southwards [S1].", 1)


def test_words_alone_check_its_answers(model: CalibratedReranker) -> None:
    """It has no relevance of a passage for a claim: what words leave undecided is unsupported."""
    answer = pytest.importorskip("rerank.rag.answer.answering").answer
    asked, open_to_all, all_of_it = [Query(ASKED)], AnswerConfig(min_score=0), Thresholds(partial=0)
    (found,) = answer(model, asked, open_to_all, thresholds=all_of_it, answerer=Undecided())
    assert found.attribution_coverage == 0
    (quoted,) = answer(model, asked, open_to_all, thresholds=all_of_it)
    assert quoted.attribution_coverage == 1


def test_self_contained_it_needs_no_weights(
    model: CalibratedReranker,
    outcome: CalibrationRun,
    retriever: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers the same from its own networks, also where the collection has moved."""
    copy = export(model, tmp_path / "deployed")
    moved = shutil.copytree(retriever.parent / "tables", tmp_path / "tables")
    monkeypatch.setenv("RERANK_RETRIEVER_URL", str(moved))
    monkeypatch.setattr(model_folder, "resolve", pytest.fail)
    again = CalibratedReranker.load(copy)
    used = again.pipeline.reranker.model
    assert isinstance(used, ModelFiles)
    assert used.folder.is_relative_to(copy)
    assert again.source.system.settings.url == str(moved)  # type: ignore[attr-defined]
    assert again.search(ASKED).to_dict() == model.search(ASKED).to_dict()


def test_lists_with_scores_are_counted_as_lists(
    model: CalibratedReranker, outcome: CalibrationRun
) -> None:
    """And they belong to the drift window: the maps of a search judge them."""
    kept, metrics = model.search(ASKED).ranking.query, Metrics()
    worker = Worker(ModelHolder(lambda: outcome.folder, metrics), Settings(drift_window=10))

    async def ask() -> None:
        for _ in range(10):
            assert (await worker.assess(kept))[0].mode == "lists"

    worker.start()
    try:
        asyncio.run(ask())
    finally:
        worker.finish()
    value = metrics.registry.get_sample_value
    assert value("rerank_confidence_count", {"mode": "lists"}) == 10
    assert not value("rerank_confidence_count", {"mode": "search"})
    assert value("rerank_drift_windows_total", {"alarm": "no"}) == 1


def test_nobody_else_waits_for_a_slow_system(
    model: CalibratedReranker, outcome: CalibrationRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list with its scores is assessed while a search waits, which is answered all the same."""
    first = model.search(ASKED)
    kept = first.ranking.query
    system = type(model.source.system)  # type: ignore[attr-defined]
    searching, answered, keyword = threading.Event(), threading.Event(), system.keyword

    def slow(*asked: Any) -> Any:
        searching.set()
        answered.wait()
        return keyword(*asked)

    async def ask(worker: Worker) -> None:
        waiting = asyncio.create_task(worker.assess(Query(ASKED)))
        await asyncio.to_thread(searching.wait)
        listed = Query(kept.text, passages=kept.passages, scores=kept.scores)
        assert (await worker.assess(listed))[0].confidence == pytest.approx(first.confidence)
        assert not waiting.done()
        answered.set()
        assert (await waiting)[0].to_dict() == first.to_dict()

    worker = Worker(ModelHolder(lambda: outcome.folder, Metrics()), Settings(timeout=3600.0))
    monkeypatch.setattr(system, "keyword", slow)
    worker.start()
    try:
        asyncio.run(ask(worker))
    finally:
        answered.set()
        worker.finish()


def test_on_the_command_line(
    small_folder: Path, outcome: CalibrationRun, retriever: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`search` prints what it prints of every model; an index and a retriever are one too many."""
    assert call("search", outcome.folder, ASKED) == 0
    assert "confidence 0." in capsys.readouterr().out
    both = ("--retriever", retriever, "--index", small_folder, "--out", retriever.parent / "no")
    assert "--index" in refused(capsys, "calibrate", small_folder, *both)
    assert call("search", "--explain", outcome.folder, ASKED) == 0
    assert "stage_agreement" in capsys.readouterr().out
    again = (
        "search",
        "--passages",
        outcome.folder,
        ASKED,
        "--second-tries",
        "--sufficiency-threshold",
        1,
    )
    assert "leave second tries out" in refused(capsys, *again)


def test_people_label_what_its_searches_find(
    model: CalibratedReranker,
    outcome: CalibrationRun,
    labelled: LabelledSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The best of each search are judged; the set needs no corpus to be evaluated on."""
    pool = pytest.importorskip("rerank.labelling.session").pool
    asked, out = tmp_path / "questions.txt", tmp_path / "set"
    texts = [labelled.queries[i].text for i in labelled.splits["test"][:2]]
    asked.write_text("\n".join(texts))
    system, (vector,) = model.source.system, model.pipeline.encode([ASKED])  # type: ignore[attr-defined]
    shown = {doc_id for one in pool(model, ASKED, 2).shown for doc_id in one.doc_ids}
    for hits in (system.keyword(ASKED, 2), system.vector(vector, 2)):
        assert {hit.passage.doc_id for hit in hits} <= shown
    monkeypatch.setattr("sys.stdin", io.StringIO("r\nn\nn\n"))
    named = ("label", outcome.folder, "--depth", 2, "--out")
    assert call(*named, out, "--questions", asked) == 0
    assert "2 questions labelled" in capsys.readouterr().out
    assert not (out / "corpus.jsonl").exists()
    assert call("evaluate", outcome.folder, out, "--work", tmp_path) == 0
    capsys.readouterr()
    assert "--questions" in refused(capsys, *named, tmp_path / "proposed")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/corpus.jsonl").write_text('{"_id": "1", "text": "another"}\n')
    other = (*named, tmp_path / "other", "--questions", asked)
    assert "are in another system" in refused(capsys, *other)


def test_passages_that_are_not_there(
    labelled: LabelledSet, retriever: Path, cheap: Config, work: Path, tmp_path: Path
) -> None:
    """Some are told with counts; none of them there is refused."""
    from rerank.assessment.sources.other_system import with_held_passages

    systems = pytest.importorskip("rerank.systems.settings")
    system = systems.connect(systems.read_settings(retriever))
    query_id, *_ = labelled.qrels
    some = replace(
        labelled,
        qrels={**labelled.qrels, query_id: {"strange'id": 1.0}},
        corpus={**labelled.corpus, "strange'id": Passage("strange'id", "", "")},
    )
    held, notes = with_held_passages(some, system)
    assert "1 of the " in notes[0]
    assert "; 1 query has no other right passage" in notes[0]
    assert held.corpus["strange'id"].text == ""
    both = {**labelled.qrels[query_id], "strange'id": 1.0}
    _, notes = with_held_passages(replace(some, qrels={**labelled.qrels, query_id: both}), system)
    assert notes[0].endswith('such as "strange\'id"')
    named = next(iter(labelled.qrels[query_id]))
    assert held.corpus.get(named, Passage(named, "", "x")).text
    none = replace(some, qrels={query_id: {"strange'id": 1.0}})
    with pytest.raises(InputError, match="none of the 1 passages that the labels name"):
        calibrate(none, tmp_path / "out", cheap, work=work, retriever=retriever)


def test_vectors_of_another_encoder(
    labelled: LabelledSet,
    rows: list[dict[str, Any]],
    retriever: Path,
    cheap: Config,
    work: Path,
    tmp_path: Path,
) -> None:
    """They are told by what they find, and by their size."""
    turned = [{**row, "vector": rows[i - 1]["vector"]} for i, row in enumerate(rows)]
    turned = [{**row, "vector": row["vector"][::-1].copy()} for row in turned]
    other = MAKERS[retriever.stem](turned, tmp_path)
    with pytest.raises(InputError, match="made by another encoder"):
        calibrate(labelled, tmp_path / "out", cheap, work=work, retriever=other)
    (tmp_path / "short").mkdir()
    short = [{**row, "vector": row["vector"][:8]} for row in rows[:20]]
    cut_off = MAKERS[retriever.stem](short, tmp_path / "short")
    with pytest.raises(InputError, match="have 8 numbers, those of the encoder 384"):
        calibrate(labelled, tmp_path / "out", cheap, work=work, retriever=cut_off)


def test_a_system_that_fails_stops_a_batch(
    model: CalibratedReranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is rejected for it, and the same command goes on later."""

    def down(*_: object) -> None:
        raise RetrieverError("it is down")

    given, out = tmp_path / "queries.jsonl", tmp_path / "out.jsonl"
    given.write_text(json.dumps({"_id": "q", "query": ASKED}) + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(model.source.system, "keyword", down)
        with pytest.raises(RetrieverError, match="it is down; 0 of 1 rows are done and kept in"):
            rerank.rescore(model, given, out)
    assert rerank.rescore(model, given, out).answered == 1

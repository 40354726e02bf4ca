"""The gate before champion: what it asks, what it measures, and what it does to the registry."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from mlflow import MlflowClient

from rerank.assessment.model import CalibratedReranker
from rerank.assessment.sources.lists import ScoredLists
from rerank.assessment.sources.other_system import OtherSystem
from rerank.assessment.sources.own_index import OwnIndex
from rerank.config import PromotionGate
from rerank.data.labelled_set import LabelledSet
from rerank.data.records import query_row
from rerank.errors import InputError
from rerank.evaluation.measure import OURS, Evaluation
from rerank.inference.score_cache import ScoreCache
from rerank.jobs.evaluate import detect_drift, evaluate
from rerank.jobs.promote import (
    Check,
    best_checks,
    certified_check,
    losses_to,
    own_checks,
    promote,
    queries_needed,
)
from rerank.jobs.recalibrate import recalibrate
from rerank.storage.folder import Workspace, with_digest
from rerank.tracking.registry import BEST, CHAMPION, aliases, set_champion
from rerank.types import OWN_STAGES, ListKind, Passage, Query

Run = Any  # the session's run, see conftest
NAME = "calibrated-rerank-small"  # after the set
EASY = PromotionGate(most_smece=1.0, least_certified=0.0, margin=0.3, brier_margin=0.3)


def alias(name: str, which: str, uri: str) -> str | None:
    """The version that has an alias."""
    return aliases(name, tracking_uri=uri).get(which)


@pytest.fixture(scope="module")
def singles(small: LabelledSet) -> LabelledSet:
    """The small set, each query a group of its own: eleven right ones then confirm 70%."""
    alone = {i: replace(q, metadata={**q.metadata, "group": i}) for i, q in small.queries.items()}
    return replace(small, queries=alone)


@pytest.fixture(scope="module")
def model(opened: CalibratedReranker) -> CalibratedReranker:
    return opened


@pytest.fixture(scope="module")
def measured(run: Run, model: CalibratedReranker, singles: LabelledSet) -> Evaluation:
    return evaluate(model, singles, "test", work=run.work)


@pytest.fixture(scope="module", autouse=True)
def _leaves_no_trace(run: Run) -> Iterator[None]:
    """The other modules find the store of the session's run as that left it."""
    yield
    ours = run.outcome.run
    client = MlflowClient(tracking_uri=ours.tracking_uri)
    for version in client.search_model_versions(f"name = '{NAME}'"):
        if version.run_id != ours.run_id:
            client.delete_model_version(NAME, version.version)
            client.delete_run(version.run_id)
    for which in (CHAMPION, BEST):
        client.delete_registered_model_alias(NAME, which)


def named(checks: Sequence[Check]) -> dict[str, bool]:
    return {check.name: check.holds for check in checks}


def test_each_threshold_can_fail(
    run: Run, model: CalibratedReranker, measured: Evaluation, singles: LabelledSet
) -> None:
    """An easy gate lets the model through; each limit stops it, and so do queries it knows."""
    checks = own_checks(model, measured, singles, EASY)
    assert all(named(checks).values())
    assert checks[0].measured == f"none of {len(measured.right)} was fitted on"
    strict = own_checks(
        model, measured, singles, PromotionGate(most_smece=0.0, least_certified=0.0)
    )
    assert not named(strict)["calibrated"]
    all_of_it = own_checks(model, measured, singles, replace(EASY, least_certified=1.0))
    assert not named(all_of_it)["certified"]
    maps = model.maps["search"]
    lucky = replace(maps, certificate=replace(maps.certificate, threshold=0.0))
    refuted = CalibratedReranker(model.files, {**model.maps, "search": lucky}, model.pipeline)
    wrong = replace(measured, right=np.zeros_like(measured.right))
    assert not named(own_checks(refuted, wrong, singles, EASY))["certified"]
    known = evaluate(model, singles, "train", work=run.work)
    unseen, *_ = own_checks(model, known, singles, EASY)
    n = len(known.right)
    assert (unseen.holds, unseen.measured) == (
        False,
        f"{n} of {n} were fitted on, or their group was",
    )


def test_a_promise_is_confirmed_or_the_check_fails(
    model: CalibratedReranker, measured: Evaluation
) -> None:
    """Thirteen passes of which six are right are consistent with 70%, and confirm nothing."""
    n = len(measured.right)
    promise = replace(model.maps["search"].certificate, threshold=0.5, refused="")
    groups = np.arange(n).astype(str)
    few = replace(measured, labelled=replace(measured.labelled, groups=groups))

    def check(certified: int, right: int) -> Check:
        sure, labels = np.arange(n) < certified, (np.arange(n) < right).astype(np.int64)
        return certified_check(promise, replace(few, certified=sure, right=labels), EASY)

    assert not check(13, 6).holds
    assert "too few queries" in check(13, 10).measured
    assert not check(13, 10).holds
    assert check(13, 13).holds
    assert check(0, 0).holds  # nothing is promised


def against(candidate: Evaluation, best: Evaluation) -> dict[str, Check]:
    """The checks by their last words, with the margins of `EASY`."""
    lost, common = losses_to(candidate, best)
    made = best_checks(lost, EASY, common, version="1")
    return {check.name.rpartition(": ")[2]: check for check in made}


def test_what_is_lost_to_the_best_fails(measured: Evaluation) -> None:
    """Against itself a model passes; one that is sure of everything wrong does not, nor does one
    that is rarely right and knows it. The check says who loses to whom.
    """
    same = against(measured, measured)
    assert all(check.holds for check in same.values())
    n = len(measured.right)
    assert f"on {n} queries the model loses 0.000 to version 1" in same["Brier score"].measured
    wrong = {**measured.confidences, OURS: np.where(measured.right == 1, 0.01, 0.99)}
    worse = replace(measured, confidences=wrong)
    assert named(list(against(worse, measured).values())) == {
        "no worse than the best champion so far: right answers": True,
        "no worse than the best champion so far: Brier score": False,
    }
    assert "the model gains" in against(measured, worse)["Brier score"].measured
    never = np.zeros_like(measured.right)
    sure = {**measured.confidences, OURS: np.full(n, 0.001)}
    modest = against(replace(measured, right=never, confidences=sure), measured)
    assert not modest["right answers"].holds
    assert modest["Brier score"].holds
    assert "too few" not in modest["right answers"].measured  # it is decided


def test_the_check_counts_the_queries_that_both_were_measured_on(measured: Evaluation) -> None:
    """Each model leaves out what its cross-encoder was trained on: the others are compared."""
    kept = np.arange(len(measured.right)) % 3 > 0
    best = replace(
        measured,
        labelled=measured.labelled.where(kept),
        right=measured.right[kept],
        confidences={OURS: measured.confidences[OURS][kept]},
    )
    for check in against(measured, best).values():
        assert check.measured.startswith(f"on {kept.sum()} queries")


def test_few_queries_prove_nothing(measured: Evaluation) -> None:
    """Even against itself: so few queries on which nothing differs do not rule out a loss."""
    lost, _ = losses_to(measured, measured)
    few = best_checks(lost, PromotionGate(), 1, version="1")
    assert not any(check.holds for check in few)


@pytest.mark.parametrize(
    ("value", "low", "high", "sentence"),
    [
        (0.00, -0.10, 0.10, "too few queries to decide: about 400 would"),  # half as wide
        (0.04, 0.00, 0.08, "too few queries to decide: about 1,600 would"),  # a quarter
        (0.15, 0.04, 0.26, "too few queries to decide: about 130 would"),  # to refuse it
        (0.05, -0.10, 0.20, "too few queries to decide, as 10,000 would be"),
        (0.00, -0.04, 0.04, ""),
        (0.20, 0.10, 0.30, ""),
        (0.00, math.nan, math.nan, "too few queries for an interval"),
    ],
)
def test_how_many_queries_would_decide(
    value: float, low: float, high: float, sentence: str
) -> None:
    """Worked out by hand, for 100 queries: with 400 an interval is half as wide."""
    said = queries_needed(100, value, low, high, limit=0.05)
    assert said.removeprefix("; ") == sentence


def test_a_passed_gate_crowns_the_version_of_the_run(run: Run, singles: LabelledSet) -> None:
    """First it fails and there is no champion; then it passes; then it must match itself."""
    uri = run.outcome.run.tracking_uri
    refused = promote(run.folder, singles, "test", replace(EASY, most_smece=0.0), work=run.work)
    assert refused.version is None
    assert refused.sentence == f"not promoted; {NAME} has no champion yet"
    assert "FAILED  calibrated" in refused.table()
    assert alias(NAME, CHAMPION, uri) is None
    first = promote(run.folder, singles, "test", EASY, work=run.work)
    assert first.sentence == f"version {first.version} is the champion now: models:/{NAME}@champion"
    assert not any("champion" in name for name in named(first.checks))
    again = promote(run.folder, singles, "test", EASY, work=run.work)
    assert (again.before, again.version) == (first.version, first.version)
    assert sum("champion" in name for name in named(again.checks)) == 2
    assert alias(NAME, CHAMPION, uri) == alias(NAME, BEST, uri) == first.version
    assert again.best == first.version


def test_queries_are_grouped_as_those_of_the_model_were(
    run: Run, singles: LabelledSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the check that it has seen none of their groups."""
    found = []

    def spied(*given: Any) -> list[Check]:
        found.append(given[2].group_by)
        return own_checks(*given)

    monkeypatch.setattr(CalibratedReranker, "group_by", "topic")
    monkeypatch.setattr("rerank.jobs.promote.own_checks", spied)
    queries = {i: replace(q, metadata={"topic": i}) for i, q in singles.queries.items()}
    impossible = replace(EASY, most_smece=0.0)
    by_topic = replace(singles, queries=queries)
    promote(run.folder, by_topic, "test", impossible, work=run.work)
    grouped_otherwise = replace(by_topic, group_by="author")
    promote(run.folder, grouped_otherwise, "test", impossible, work=run.work)
    assert found == ["topic", "author"]


def test_a_champion_of_another_corpus_is_not_compared_with(
    run: Run, singles: LabelledSet, tmp_path: Path
) -> None:
    """It is not replaced unasked: whoever follows the name would search other passages."""
    uri = run.outcome.run.tracking_uri
    before = promote(run.folder, singles, "test", EASY, work=run.work).version
    other = Path(shutil.copytree(run.folder, tmp_path / "other"))
    manifest = json.loads((other / "manifest.json").read_text())
    renamed = {"corpus_digest": "of another one", "name": NAME}
    (other / "manifest.json").write_text(json.dumps(with_digest({**manifest, **renamed})))
    refused = promote(other, singles, "test", EASY, work=run.work)
    assert refused.version is None
    assert not named(refused.checks)["same corpus"]
    assert f"version {before} stays the champion" in refused.sentence
    assert f"version {before} searches another one: small, {len(singles.corpus)} passages" in (
        refused.table()
    )
    taken = promote(other, singles, "test", EASY, work=run.work, new_corpus=True)
    assert alias(NAME, CHAMPION, uri) == alias(NAME, BEST, uri) == taken.version != before
    assert not any("no worse" in name for name in named(taken.checks))
    set_champion(NAME, run.outcome.run.run_id, tracking_uri=uri)


def test_a_recalibrated_model_is_promoted_without_another_command(
    run: Run, model: CalibratedReranker, singles: LabelledSet, tmp_path: Path
) -> None:
    """`recalibrate` tracks it under the name of the model that it moves, which is the champion."""
    uri = run.outcome.run.tracking_uri
    set_champion(NAME, run.outcome.run.run_id, tracking_uri=uri)
    ids = sorted(singles.splits["test"], key=lambda i: (singles.group(i), i))
    halves = {"labels": tuple(ids[:10]), "test": tuple(ids[10:])}  # too few to certify by
    halved = replace(singles, splits=halves)
    moved = recalibrate(model, halved, tmp_path / "moved", split="labels", work=run.work)
    assert moved.run is not None
    assert moved.run.model_name == NAME
    done = promote(moved.folder, halved, "test", EASY, work=run.work)
    assert any("no worse" in name for name in named(done.checks))
    assert not any("corpus" in name for name in named(done.checks))
    assert done.version == moved.run.model_version
    again = promote(run.folder, halved, "test", EASY, work=run.work)  # and now the other way round
    assert any("no worse" in name for name in named(again.checks))


def test_a_model_that_mlflow_lacks_is_sent_to_it(
    run: Run, singles: LabelledSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry holds versions of runs: a folder without one gets one when it passes."""
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    shutil.copyfile(run.work / "mlflow.db", tmp_path / "mlflow.db")  # migrated already
    manifest = json.loads((run.folder / "manifest.json").read_text())
    fresh = Path(shutil.copytree(run.folder, tmp_path / "model"))
    (fresh / "manifest.json").write_text(json.dumps(with_digest({**manifest, "name": "elsewhere"})))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert promote(fresh, singles, "test", EASY, work=run.work).version == "1"
    assert alias("elsewhere", CHAMPION, uri) == "1"


def test_the_alarm_hears_other_questions(model: CalibratedReranker, singles: LabelledSet) -> None:
    """The set's own test queries raise none; questions about something else do."""
    assert not detect_drift(model, singles.select(singles.splits["test"])).fired
    strange = [f"who won the {1950 + i} election in county {i}" for i in range(40)]
    found = detect_drift(model, strange)
    assert found.fired
    assert found.moves[0].name in found.table()
    with pytest.raises(InputError, match="no passage was found"):
        detect_drift(model, [])
    brought = Query("median", passages=(Passage("1", "", "The middle value."),))
    with pytest.raises(InputError, match=r"fitted on queries in search mode.* is in rerank"):
        detect_drift(model, [*strange, brought])


def test_queries_of_few_groups_are_few_for_the_alarm(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the model was calibrated by conversation, those of new queries are its groups as well."""
    folder = Path(shutil.copytree(run.folder, tmp_path / "model"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["dataset"]["group_by"] = "conversation"
    (folder / "manifest.json").write_text(json.dumps(with_digest(manifest)))
    cache = ScoreCache(Workspace(run.work).scores)
    model = CalibratedReranker.load(folder, cache=cache)
    texts = [f"who won the {1950 + i} election in county {i}" for i in range(40)]

    def of_two(key: str) -> list[Query]:
        return [Query(text, str(i), {key: f"c{i % 2}"}) for i, text in enumerate(texts)]

    found = detect_drift(model, of_two("conversation"))
    assert found.m < detect_drift(model, texts).m
    first = CalibratedReranker.load(run.folder, cache=cache)
    assert found == detect_drift(first, of_two("group"))
    path = tmp_path / "queries.jsonl"
    rows = map(query_row, of_two("conversation"))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    capsys.readouterr()
    call("watch", "drift", folder, path, "--json", "--work", run.work)
    assert json.loads(capsys.readouterr().out) == found.to_dict()


def test_the_alarm_needs_no_labels(run: Run, singles: LabelledSet, tmp_path: Path) -> None:
    """Neither qrels, nor judged queries only: strange ones beside one that is judged are heard."""
    strange = {f"s{i}": Query(f"who won election {i}", f"s{i}") for i in range(40)}
    judged = singles.splits["test"][0]
    queries = {judged: singles.queries[judged]} | strange
    whole = replace(singles, queries=queries, splits={"test": tuple(queries)}, qrels={})
    options = (tmp_path, "--work", run.work)
    whole.write(tmp_path)
    shutil.rmtree(tmp_path / "splits")
    qrels = tmp_path / "qrels" / "test.tsv"
    qrels.write_text(f"{judged}\t{next(iter(singles.corpus))}\t1\n")
    assert call("watch", "drift", run.folder, *options) == 1
    for split in ("none", "unlabelled"):
        assert call("watch", "drift", run.folder, *options, "--split", split) == 2
    assert (
        call("watch", "drift", run.folder, *options, "--split", "test") == 0
    )  # the judged query alone
    qrels.unlink()
    assert call("watch", "drift", run.folder, *options) == 1
    assert call("watch", "drift", run.folder, *options, "--split", "test") == 2


def test_what_an_evaluation_notes_is_told(
    run: Run,
    small_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a line beside the checks, and in the JSON object."""

    def noting(*given: Any, **options: Any) -> Evaluation:
        return replace(evaluate(*given, **options), notes=("left out: 7 queries.",))

    monkeypatch.setattr("rerank.jobs.promote.evaluate", noting)
    words = ("model", "promote", run.folder, small_folder, "--work", run.work, "--most-smece", 0)
    assert call(*words) == 1
    assert "rerank: left out: 7 queries." in capsys.readouterr().err
    assert call(*words, "--json") == 1
    assert json.loads(capsys.readouterr().out)["notes"][0] == "left out: 7 queries."


def test_queries_drawn_by_their_confidence_promote_nothing(
    run: Run, singles: LabelledSet, tmp_path: Path
) -> None:
    """Their accuracy, unweighted, is not that of the queries that they were drawn from."""
    queries = {i: replace(q, metadata={"weight": 2.0}) for i, q in singles.queries.items()}
    with pytest.raises(InputError, match="queries of 'test' are no random sample"):
        promote(run.folder, replace(singles, queries=queries), "test", work=tmp_path)


def test_which_models_rank_the_same() -> None:
    """Of one corpus, one system, or lists of the same stages, whatever passages are labelled."""
    ours, lists, system = (kind.comparison_key for kind in (OwnIndex, ScoredLists, OtherSystem))
    both, one = ListKind(("bm25", "colbert"), texts=True), ListKind(("bm25",), texts=True)
    a, b = {"corpus_digest": "a"}, {"corpus_digest": "b"}
    assert ours(a, OWN_STAGES) == ours(a, OWN_STAGES) != ours(b, OWN_STAGES)
    here, there = {"retriever": {"url": "one"}}, {"retriever": {"url": "two"}}
    assert system(a | here, one) == system(b | here, one) != system(a | there, one)
    assert lists(a, both) == lists(b, both) != lists(a, one)
    assert len({str(key(a | here, one)) for key in (ours, lists, system)}) == 3

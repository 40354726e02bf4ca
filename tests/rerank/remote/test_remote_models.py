"""A calibration with models behind addresses: paid for once, bound by a probe, and no key in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from remote_server import KEY, Server, running_server, status
from server import serving
from small_sets import two_word_questions

import rerank
from rerank.cli import main
from rerank.inference.given import REMOTE_TEXTS, open_remote
from rerank.inference.remote.client import METER, THREADS, Budget, LimitError

SMALL = {"rerank_depth": 3, "candidates": 6, "pool": 12, "folds": 2}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_word_questions(tmp_path_factory.mktemp("set"))


@dataclass
class Made:
    """A model folder, the server that it was made with, and what was told meanwhile."""

    server: Server
    home: Path
    command: list[str]
    runs: list[tuple[int, int, int, str]]  # exit code, requests sent, requests told, output

    @property
    def folder(self) -> Path:
        """The model folder."""
        return self.home / "model"


@pytest.fixture(scope="module")
def made(labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """`rerank calibrate` with a reranker and an encoder of the server: stopped by its budget,
    stopped by a failure, resumed to the end, and once more.
    """
    home = tmp_path_factory.mktemp("home")
    flags = [x for k, v in SMALL.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    places = ["--work", str(home / "work"), "--out", str(home / "model")]
    with running_server(home / "cache") as server, pytest.MonkeyPatch.context() as patch:
        models = ["--reranker", f"{server.url}/rerank", "--encoder", f"{server.url}/v1/embeddings"]
        done = Made(server, home, ["calibrate", str(labelled), *models, *flags, *places], [])
        patch.setenv("RERANK_API_KEY", KEY)
        for more, faults in [
            (["--most-requests", "40"], []),
            ([], [*[lambda _, answer: answer] * 30, status(400, f"not with {KEY}")]),
            ([], []),
            ([], []),
        ]:
            before, server.faults = len(server.requests), faults
            told = io.StringIO()
            with redirect_stderr(told), redirect_stdout(told):
                code = main([*done.command, *more])
            sent = len(server.requests) - before
            numbers = re.findall(r"^rerank: (\d+) requests? to", told.getvalue(), re.MULTILINE)
            done.runs.append((code, sent, sum(map(int, numbers)), told.getvalue()))
        patch.delenv("RERANK_API_KEY")
        yield done


@pytest.fixture
def server(made: Made) -> Iterator[Server]:
    """The server of the model, as it was; put back at the end."""
    server = made.server
    before = dict(vars(server))
    server.requests, server.paid = [], []
    yield server
    vars(server).clear()
    vars(server).update(before)


def pairs_of(paid: list[tuple[str, Any]]) -> Counter[tuple[str, str]]:
    """How often each pair was scored, without those of the probe."""
    bodies = [body for path, body in paid if path == "/rerank"]
    return Counter((b["query"], t) for b in bodies for t in b["documents"] if t not in REMOTE_TEXTS)


def test_a_calibration_pays_once(made: Made) -> None:
    """No pair is scored twice, whatever stopped it, and every request is counted."""
    assert [code for code, _, _, _ in made.runs] == [3, 3, 0, 0]
    assert [sent for _, sent, _, _ in made.runs] == [told for _, _, told, _ in made.runs]
    pairs = pairs_of(made.server.paid)
    assert len(pairs) > 100
    assert set(pairs.values()) == {1}
    assert made.runs[0][1] == 40
    assert made.runs[-1][1] < 20  # all was there: only probes


def test_no_file_and_no_output_has_the_key(made: Made) -> None:
    """Neither the model folder, nor the scores, MLflow's records, reports or the terminal."""
    files = [path for path in made.home.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in "".join(output for _, _, _, output in made.runs)
    assert {key for _, key, _ in made.server.requests} == {f"Bearer {KEY}"}


def test_a_key_goes_to_no_host_that_only_a_folder_names(
    made: Made, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote the folder chose the address; the environment must name it, too."""
    monkeypatch.setenv("RERANK_API_KEY", KEY)
    with pytest.raises(rerank.InputError, match="RERANK_API_HOSTS"):
        rerank.load(made.folder)
    monkeypatch.setenv("RERANK_API_HOSTS", f"other, {server.url.removeprefix('http://')}")
    assert rerank.load(made.folder).calibrated


def scale(server: Server) -> None:
    server.scale = 2.0


def squash(server: Server) -> None:
    server.scale, server.offset = 0.3, -4.0


def other_model(server: Server) -> None:
    server.score = lambda query, text: len(text) % 7.0  # type: ignore[method-assign]


def reads_less(server: Server) -> None:
    server.reads = 700


def renamed(server: Server) -> None:
    server.model = "words-2"


@pytest.mark.parametrize(
    ("change", "affine"),
    [(scale, True), (squash, True), (other_model, False), (reads_less, False), (renamed, True)],
)
def test_another_model_is_found_out(
    made: Made,
    server: Server,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Server], None],
    affine: bool,
) -> None:
    """Before its first answer: that is not calibrated, accepted or certified; `watch probe` says
    how far it is, and whether a scale and an offset explain it. When it is back, all is well.
    """
    probe = ["watch", "probe", str(made.folder), "--json", "--work", str(made.home / "work")]
    model = rerank.load(made.folder)
    before = model.search("redhouse n7")
    assert before.calibrated
    assert main(probe) == 0
    as_it_was = dict(vars(server))
    change(server)
    capsys.readouterr()
    assert main(probe) == 1
    told = json.loads(capsys.readouterr().out)["models"]["reranker"]
    assert told["affine"] is affine
    if change is scale:
        assert told["scale"] == pytest.approx(2.0)
        assert told["offset"] == pytest.approx(0.0, abs=1e-6)
    found = rerank.load(made.folder).search("redhouse n7")
    assert (found.calibrated, found.accepted, found.certified) == (False, False, False)
    assert "probe" in found.reasons[0]
    model.probe_remote()
    assert "reranker" in model.shifted
    assert not model.calibrated
    vars(server).clear()
    vars(server).update(as_it_was)
    model.probe_remote()
    assert model.search("redhouse n7").to_dict() == before.to_dict()


def test_a_new_name_is_found_out_by_the_first_answer(made: Made, server: Server) -> None:
    """Servers that name their model in every answer need no probe."""
    model = rerank.load(made.folder)
    server.model = "words-2"
    assert not model.search("redhouse n7").calibrated


def test_scores_of_another_model_are_not_kept(made: Made, server: Server, tmp_path: Path) -> None:
    """A model that has shifted neither uses the scores of the first, nor leaves its own."""
    queries, answers = tmp_path / "in.jsonl", []
    queries.write_text('{"_id": "a", "query": "redhouse oldbird"}\n')
    rescore = ["rescore", str(made.folder), str(queries), "--work", str(made.home / "work")]
    for i, factor in enumerate((2.0, 1.0, 1.0, 2.0)):
        server.scale, server.paid = factor, []
        assert main([*rescore, "--out", str(tmp_path / f"{i}.jsonl")]) == 0
        answer = json.loads((tmp_path / f"{i}.jsonl").read_text())
        answers.append((answer["calibrated"], len(pairs_of(server.paid)) > 0))
    assert answers == [(False, True), (True, True), (True, False), (False, True)]


def test_a_calibration_with_another_model_scores_anew(server: Server, tmp_path: Path) -> None:
    """The fingerprint is that of the probe, which was kept: equal as long as the model is."""
    first = open_remote(server.url, "reranker")
    assert open_remote(server.url, "reranker").fingerprint == first.fingerprint
    server.scale = 2.0
    assert open_remote(server.url, "reranker").fingerprint != first.fingerprint


def test_a_listwise_model_is_recognised(server: Server) -> None:
    """The scores of a model that reads the whole list depend on the order of the texts."""
    assert not open_remote(server.url, "reranker").model.traits.listwise
    answer = server.answer

    def by_place(path: str, body: Any) -> Any:
        found = answer(path, body)
        for row in found["results"]:
            row["relevance_score"] += row["index"]
        return found

    server.answer = by_place  # type: ignore[method-assign]
    assert open_remote(f"{server.url}/other", "reranker").model.traits.listwise


def test_noise_is_measured_at_the_fit(server: Server) -> None:
    """What differs between two runs of one model is no shift."""
    draw, score = np.random.default_rng(0), server.score
    noisy = lambda query, text: score(query, text) + draw.normal(0, 0.1)  # noqa: E731
    server.score = noisy  # type: ignore[method-assign]
    model = open_remote(server.url, "reranker")
    assert not any(model.shift().shifted for _ in range(5))
    assert open_remote(server.url, "reranker").fingerprint == model.fingerprint
    server.scale = 2.0
    assert model.shift().shifted
    assert open_remote(server.url, "reranker").fingerprint != model.fingerprint


def test_nothing_is_imported_for_local_models() -> None:
    """Httpx is opened with the first address."""
    code = "import rerank, rerank.cli, sys; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_server_says_what_has_changed(made: Made, server: Server) -> None:
    """It waits for the model in threads; a failure is 503, a shift is told until it is over."""
    with serving(made.folder) as started, httpx.Client(base_url=started.url, timeout=600) as http:

        def search() -> dict[str, Any]:
            answer: dict[str, Any] = http.post("/v1/search", json={"query": "redhouse n7"}).json()
            return answer

        def told() -> tuple[str, bool]:
            return http.get("/readyz").text, "rerank_remote_shifted 1.0" in http.get(
                "/metrics"
            ).text

        before = search()
        assert before["calibrated"]
        assert told() == ("ready\n", False)
        server.faults = [status(400)]
        assert http.post("/v1/search", json={"query": "redhouse n7"}).status_code == 503
        asked = {"query": "redhouse n7", "instruction": "be strict"}
        refused = http.post("/v1/search", json=asked)
        assert refused.status_code == 422
        assert "calibrated without" in refused.json()["message"]
        server.scale = 2.0
        started.holder.probe()
        assert not search()["calibrated"]
        ready, metric = told()
        assert "uncalibrated" in ready
        assert metric
        server.scale = 1.0
        started.holder.probe()
        assert search()["confidence"] == before["confidence"]
        assert told() == ("ready\n", False)


def without_reranker(server: Server) -> None:
    """The server answers 422 to its reranker's route from now on."""
    answer = server.answer
    server.answer = (  # type: ignore[method-assign]
        lambda path, body: None if path == "/rerank" else answer(path, body)
    )


def check_first_stage(found: rerank.Assessment) -> None:
    assert found.first_stage
    assert (found.calibrated, found.accepted, found.certified) == (False, False, False)
    assert found.level in ("LOW", "VERY_LOW")
    assert found.verdict != "SUFFICIENT"
    assert [p.logit for p in found.passages] == [None] * len(found.passages)
    assert found.relevance.tolist() == sorted(found.relevance.tolist(), reverse=True)
    assert found.ranking.score.tolist() == sorted(found.ranking.score.tolist(), reverse=True)
    assert found.confidence == found.relevance[0] == found.ranking.score[0]
    (reason,) = found.reasons
    assert "the reranker failed" in reason


def test_the_first_stage_answers_where_the_reranker_fails(made: Made, server: Server) -> None:
    """If the user chose that: marked, query by query; by default it is an error."""
    model = rerank.load(made.folder, on_reranker_error="first-stage")
    before = [found.to_dict() for found in model.assess(["redhouse n7", "oldbird"])]
    as_it_was, answer = dict(vars(server)), server.answer
    server.answer = lambda path, body: (  # type: ignore[method-assign]
        None if body.get("query") == "oldbird" else answer(path, body)
    )
    right, failed = model.assess(["redhouse n7", "oldbird"])
    assert right.to_dict() == before[0]
    check_first_stage(failed)
    with pytest.raises(rerank.RetrieverError):
        rerank.load(made.folder).search("oldbird")
    vars(server).clear()
    vars(server).update(as_it_was)
    assert [found.to_dict() for found in model.assess(["redhouse n7", "oldbird"])] == before


def test_a_used_up_budget_is_no_failure(made: Made, server: Server) -> None:
    """The user's own limit stops a search, too: the first stage answers for no other reason."""
    model = rerank.load(made.folder, on_reranker_error="first-stage")
    METER.start(Budget(most_requests=1))  # the encoder's
    with pytest.raises(LimitError):
        model.search("redhouse n7")
    METER.start(Budget())


def test_a_reranker_that_is_away_at_loading(
    made: Made, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is calibrated until a probe finds it as it was; `rerank search` works meanwhile."""
    as_it_was = dict(vars(server))
    without_reranker(server)
    search = ["search", str(made.folder), "redhouse n7", "--json"]
    assert main(search) == 3
    capsys.readouterr()
    before = len(server.requests)
    assert main([*search, "--on-reranker-error", "first-stage"]) == 0
    asked = [body["query"] for _, _, body in server.requests[before:] if "documents" in body]
    assert "redhouse n7" not in asked  # who did not answer at loading is not asked again
    assert asked
    told = json.loads(capsys.readouterr().out)
    assert (told["calibrated"], told["accepted"]) == (False, False)
    model = rerank.load(made.folder, on_reranker_error="first-stage")
    check_first_stage(model.search("redhouse n7"))
    vars(server).clear()
    vars(server).update(as_it_was)
    back = model.search("redhouse n7")
    assert not back.first_stage
    assert not back.calibrated
    model.probe_remote()
    assert model.search("redhouse n7").calibrated


def test_a_server_answers_without_its_reranker(
    made: Made, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Marked in the answer, the metric, the log and the journal; not kept for the next question."""
    how: Any = {"on_reranker_error": "first-stage", "cache_seconds": 60.0}
    how["journal"] = f"sqlite:///{tmp_path / 'journal.db'}"
    caplog.set_level(logging.INFO, "rerank")
    with (
        serving(made.folder, **how) as started,
        httpx.Client(base_url=started.url, timeout=600) as http,
    ):

        def search() -> dict[str, Any]:
            return dict(http.post("/v1/search", json={"query": "redhouse n7"}).json())

        as_it_was = dict(vars(server))
        without_reranker(server)
        failed = search()
        assert (failed["calibrated"], failed["accepted"]) == (False, False)
        assert failed["level"] in ("LOW", "VERY_LOW")
        assert "rerank_first_stage_answers_total 1.0" in http.get("/metrics").text
        vars(server).clear()
        vars(server).update(as_it_was)
        assert search()["calibrated"]
        version = http.get("/v1/model").json()["model"]
    told = [getattr(record, "fields", {}) for record in caplog.records]
    answered = [fields for fields in told if "confidence" in fields]
    assert [fields.get("first_stage") for fields in answered] == [True, None]
    assert "the first stage answers" in caplog.text
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
        kept = journal.execute("SELECT model, accepted FROM rerank_journal ORDER BY entry_id")
        assert kept.fetchall()[0] == (f"{version} first stage", 0)


def test_answers_without_the_reranker_are_not_sure(
    made: Made, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rerank answer`, /v1/answer and MCP mark them: not calibrated, never SUFFICIENT."""
    mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    from rerank.rag.mcp_server import mcp_server

    question, how = "redhouse n7", {"on_reranker_error": "first-stage"}
    model = rerank.load(made.folder, **how)
    command = ["answer", str(made.folder), question, "--json"]

    async def searched() -> Any:
        async with mcp.Client(mcp_server(model)) as client:
            return (await client.call_tool("search", {"query": question})).structured_content

    with (
        serving(made.folder, **how) as started,
        httpx.Client(base_url=started.url, timeout=600) as http,
    ):
        as_it_was = dict(vars(server))
        without_reranker(server)
        told = [http.post("/v1/answer", json={"query": question}).json()]
        assert main(command) == 3
        capsys.readouterr()
        assert main([*command, "--on-reranker-error", "first-stage"]) == 0
        told.append(json.loads(capsys.readouterr().out))
        assert main([*command[:-1], "--on-reranker-error", "first-stage"]) == 0
        assert "the reranker failed" in capsys.readouterr().out
        found = asyncio.run(searched())
        vars(server).clear()
        vars(server).update(as_it_was)
        assert "first_stage" not in http.post("/v1/answer", json={"query": question}).json()
    for answer in told:
        assert answer["first_stage"]
        assert (answer["calibrated"], answer["accepted"]) == (False, False)
        assert answer["verdict"] in ("PARTIAL", "INSUFFICIENT")
        assert answer["refused"] or answer["low_confidence"]
    assert (found["calibrated"], found["first_stage"]) == (False, True)
    assert found["note"]


UNTRACKED = """
import sys
sys.modules["mlflow"] = None
from rerank.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_calibration_pays_for_nothing_twice(labelled: Path, tmp_path: Path) -> None:
    """But for the few requests that were on their way when it died."""
    with running_server(tmp_path / "cache") as server:
        models = ["--reranker", f"{server.url}/rerank", "--encoder", f"{server.url}/v1/embeddings"]
        flags = [x for k, v in SMALL.items() for x in (f"--{k.replace('_', '-')}", str(v))]
        places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "model")]
        command = [sys.executable, "-c", UNTRACKED, "calibrate", str(labelled), *models, *flags]
        running = subprocess.Popen([*command, *places], stderr=subprocess.DEVNULL)

        def kill(_: object, answer: Any) -> Any:
            running.kill()
            return answer

        server.faults = [*[lambda _, answer: answer] * 40, kill]
        assert running.wait(600) < 0
        before = pairs_of(server.paid)
        subprocess.run([*command, *places], check=True, stderr=subprocess.DEVNULL)
        pairs = pairs_of(server.paid)
        twice = [pair for pair, count in pairs.items() if count > 1]
        assert len({query for query, _ in twice}) <= THREADS
        assert max(pairs.values()) <= 2
        assert THREADS < len({query for query, _ in before}) < len({query for query, _ in pairs})


def test_instructions_of_queries_have_their_own_segments(
    made: Made, server: Server, labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the labelled set to the answer: the reranker reads each, unknown ones are not
    calibrated, and a form without a place for one is refused before anything is scored.
    """
    folder = tmp_path / "set"
    shutil.copytree(labelled, folder)
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    asked = "only recent ones"
    for row in rows[::2]:
        row["instruction"] = asked
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = rerank.LabelledSet.read(folder)
    config = rerank.Config(**SMALL, segment_by="instruction")
    with pytest.raises(rerank.InputError, match="without an instruction"):
        rerank.calibrate(
            data, tmp_path / "no", config, work=tmp_path / "w", reranker=f"jina+{server.url}"
        )
    server.paid = []
    name = f"systemone+{server.url}"
    rerank.calibrate(data, tmp_path / "model", config, work=tmp_path / "w", reranker=name)
    of_rows = {row["text"]: row.get("instruction") for row in rows}
    states = {body["state"]["query"] for path, body in server.paid if path == "/v1/systemone"}
    expected = {q + (f"\n\nWhat counts as an answer: {i}" if i else "") for q, i in of_rows.items()}
    assert expected <= states
    assert not {q for q, i in of_rows.items() if i} & states
    model = rerank.load(tmp_path / "model")
    assert asked in model.segments
    text = rows[0]["text"]
    known, other, none = (
        model.search(text, metadata=given)
        for given in ({"instruction": asked}, {"instruction": "only old ones"}, {})
    )
    assert [found.calibrated for found in (known, other, none)] == [True, False, True]
    assert "no labelled query has this instruction" in other.reasons[0]
    with pytest.raises(rerank.InputError, match="calibrated without"):
        rerank.load(made.folder).search(text, metadata={"instruction": asked})
    with serving(tmp_path / "model") as started:
        body = {"query": text, "instruction": asked}
        answer = httpx.post(f"{started.url}/v1/search", json=body, timeout=600).json()
    assert answer["confidence"] == known.confidence
    lines = tmp_path / "asked.jsonl"
    lines.write_text(json.dumps({"_id": "a", "query": text, "instruction": asked}) + "\n")
    out = tmp_path / "out.jsonl"
    assert main(["rescore", str(tmp_path / "model"), str(lines), "--out", str(out)]) == 0
    assert json.loads(out.read_text())["confidence"] == known.confidence
